"""The options by which the user's ssh reaches containers; see ssh_config(5)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from agentless.client.ssh import proxy
from agentless.paths import SSH_HOST, SSH_KNOWN_HOSTS

_NEWER = (("WarnWeakCrypto", "no"),)
"""Options of newer OpenSSH: 10.1 warns of every key exchange that is not post-quantum."""
HOSTS = f"*{proxy.SUFFIX}"


def options(state: Path, inventory: Path | None) -> list[tuple[str, str]]:
    """Names and values, quoted as in a configuration file.

    A host name that could leave its quotes is no host of ours: the pattern of the configuration file excludes it.
    """
    words = [sys.executable, "-IS", proxy.__file__, str(state), str(inventory or "")]
    command = " ".join(shlex.quote(word) for word in words).replace("%", "%%")
    return [
        ("ProxyCommand", f"{command} '%n'"),
        ("ProxyUseFdpass", "yes"),
        ("HostKeyAlias", SSH_HOST),
        ("HostKeyAlgorithms", "ssh-ed25519"),
        ("UserKnownHostsFile", f'"{str(state / SSH_KNOWN_HOSTS).replace("%", "%%")}"'),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("StrictHostKeyChecking", "yes"),
        ("UpdateHostKeys", "no"),
        ("CheckHostIP", "no"),
        ("Ciphers", "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes256-ctr"),
        ("KexAlgorithms", "curve25519-sha256,curve25519-sha256@libssh.org"),
        ("PubkeyAuthentication", "yes"),
        ("KbdInteractiveAuthentication", "yes"),
        ("PreferredAuthentications", "publickey,keyboard-interactive"),
        ("RemoteCommand", "none"),
        *((name, value) for name, value in _NEWER if _is_known(name, value)),
    ]


def host_names(*words: str | None) -> str:
    """The hosts of these ids and names, as patterns. A name that could mean more, from a forged label, is left out."""
    plain = [word for word in words if word and re.fullmatch(r"[A-Za-z0-9][\w.-]*", word, re.ASCII)]
    return " ".join(f"{word}{proxy.SUFFIX}" for word in dict.fromkeys(plain))


def _is_known(name: str, value: str) -> bool:
    """Whether the ssh here knows an option: for another one it fails, also where that is under another `Host`."""
    try:
        argv = ["ssh", "-F", "/dev/null", "-o", f"{name}={value}", "-G", "x"]
        return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def arguments(state: Path, inventory: Path | None) -> list[str]:
    """The same for the command line of ssh."""
    return [word for name, value in options(state, inventory) for word in ("-o", f"{name}={value}")]


def config(state: Path, inventory: Path | None, hosts: str = HOSTS) -> str:
    """The same as a file, for hosts of these patterns."""
    lines = [f"  {name} {value}\n" for name, value in options(state, inventory)]
    return f'# Written by agentless ssh-config\nHost {hosts} "!*\'*"\n' + "".join(lines)
