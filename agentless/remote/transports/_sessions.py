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


NO_GREETING = "it greets as no SSH server does"


def no_command(node: str, error: Exception) -> Refused:
    """The error of a server that gives a session and runs nothing in it."""
    return Refused(f"{node} runs no command ({error}); see whether `ssh HOST true` works")


def no_terminal(node: str) -> Refused:
    """The error of a server that gives no pseudo-terminal."""
    return Refused(
        f"{node} gives no terminal: allow it there (PermitTTY in sshd_config), or do without one: "
        "agentless shell TASK -- COMMAND </dev/null"
    )
