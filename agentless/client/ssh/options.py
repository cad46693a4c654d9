"""The options by which the user's ssh reaches containers; see ssh_config(5)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from agentless.client.ssh import proxy
from agentless.paths import SSH_HOST, SSH_KNOWN_HOSTS

HOSTS = f"*{proxy.SUFFIX}"


def options(state: Path, inventory: Path | None) -> list[tuple[str, str]]:
    """Names and values, quoted as in a configuration file.

    A host name that could leave its quotes is no host of ours: the pattern of the configuration file excludes it.
    """
    words = [sys.executable, "-IS", proxy.__file__, str(state), str(inventory or "")]
    command = " ".join(shlex.quote(word) for word in words).replace("%", "%%")
    return [
        ("IgnoreUnknown", "WarnWeakCrypto"),
        ("ProxyCommand", f"{command} '%n'"),
        ("ProxyUseFdpass", "yes"),
        ("HostKeyAlias", SSH_HOST),
        ("HostKeyAlgorithms", "ssh-ed25519"),
        ("UserKnownHostsFile", f'"{str(state / SSH_KNOWN_HOSTS).replace("%", "%%")}"'),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("StrictHostKeyChecking", "yes"),
        ("UpdateHostKeys", "no"),
        ("CheckHostIP", "no"),
        ("WarnWeakCrypto", "no"),
        ("Ciphers", "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes256-ctr"),
        ("KexAlgorithms", "curve25519-sha256,curve25519-sha256@libssh.org"),
        ("PubkeyAuthentication", "no"),
        ("ForwardAgent", "no"),
    ]


def arguments(state: Path, inventory: Path | None) -> list[str]:
    """The same for the command line of ssh."""
    return [word for name, value in options(state, inventory) for word in ("-o", f"{name}={value}")]


def config(state: Path, inventory: Path | None) -> str:
    """The same as a file."""
    lines = [f"  {name} {value}\n" for name, value in options(state, inventory)]
    return f'# Written by agentless ssh-config\nHost {HOSTS} "!*\'*"\n' + "".join(lines)
