"""Requests of SSH sessions, and the errors if a server refuses them."""

from __future__ import annotations

from agentless.errors import Refused
from agentless.model.command import escaped

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


def no_command(node: str, error: Exception) -> Refused:
    """The error of a server that gives a session and runs nothing in it."""
    return Refused(f"{node} cannot run commands ({error}); check that `ssh HOST true` works")


def no_terminal(node: str) -> Refused:
    """The error of a server that gives no pseudo-terminal."""
    return Refused(
        f"{node} does not allow terminals; set PermitTTY yes in its sshd_config, or run without a "
        "terminal: agentless shell TASK -- COMMAND </dev/null"
    )
