"""The host key of this installation: one for all containers, so that a new container is no new host."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh

from agentless.paths import SSH_HOST, SSH_KNOWN_HOSTS
from agentless.stores import private

_NAME = "ssh_host_key"


def load(state: Path) -> asyncssh.SSHKey:
    """The key in this state folder, created if missing, with the file of known hosts that names it. Raises OSError."""
    path = state / _NAME
    try:
        key = asyncssh.import_private_key(path.read_bytes())
    except (FileNotFoundError, asyncssh.KeyImportError):
        key = asyncssh.generate_private_key("ssh-ed25519")
        os.replace(private.fresh(path, key.export_private_key("openssh")), path)
    known = b"%s %s" % (SSH_HOST.encode(), key.export_public_key("openssh"))
    hosts = state / SSH_KNOWN_HOSTS
    if not hosts.exists() or hosts.read_bytes() != known:
        os.replace(private.fresh(hosts, known), hosts)
    return key
