"""Requests of SSH sessions, and the errors if a server refuses them."""

from __future__ import annotations

from agentless.errors import Unreachable
from agentless.model.command import escaped
from agentless.remote.transports._pool import NotStarted
from agentless.remote.transports._ssh.route import Hop

_CONNECT_FAILED = 2
TERM = "xterm"
"""As Docker says it: a terminal that every image knows."""


def login_words(script: str) -> str:
    """A command that runs the script by `sh`, whichever login shell reads it.

    Shells quote in different ways, so the script is an argument with nothing to quote.
    """
    word = escaped(script.encode("utf-8", "surrogateescape")).decode()
    return f"exec sh -c 'eval \"$(printf %b \"$0\")\"' '{word}'"


def is_single(version: str) -> bool:
    """Whether such a server gives a connection one session, and ends with it: tinyssh does."""
    return "tinyssh" in version


NO_GREETING = "it does not answer like an SSH server"


def broke_off(hop: Hop, why: object) -> Unreachable:
    """The error of a server that ends the login."""
    return Unreachable(f"{hop.where} closed the connection during the login: {why}; check that `{hop.by_hand}` works")


def not_forwarded(where: str, code: int, reason: str) -> Unreachable:
    """The error of a jump host that opens no connection to the next machine; `code` as in RFC 4254, 5.1."""
    if code == _CONNECT_FAILED:
        return Unreachable(
            f"{where} cannot be reached from its jump host: {reason}; check that it is up and that host and port are "
            "right as seen from there"
        )
    return Unreachable(
        f"{where} cannot be reached: its jump host forwards no connections ({reason}); set AllowTcpForwarding yes in "
        "the sshd_config of the jump host, or use another one"
    )


def no_command(node: str, error: Exception) -> NotStarted:
    """The error of a server that gives a session and runs nothing in it."""
    return NotStarted(f"{node} cannot run commands ({error}); check that `ssh HOST true` works")


def no_terminal(node: str) -> NotStarted:
    """The error of a server that gives no pseudo-terminal."""
    return NotStarted(
        f"{node} does not allow terminals; set PermitTTY yes in its sshd_config, or run without a "
        "terminal: agentless shell TASK -- COMMAND </dev/null"
    )
