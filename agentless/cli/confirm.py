"""The question before what cannot be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentless.errors import AgentlessError, Refused

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, no: str, *, unattended: AgentlessError | None = None) -> None:
    """Ask on a terminal, and raise Refused with `no` unless the answer is yes.

    Nobody is asked without a terminal: that is a yes, or raises `unattended`.
    """
    if not sys.stdin.isatty():
        if unattended:
            raise unattended
    elif not typer.confirm(question, default=False, err=True):
        raise Refused(no)
