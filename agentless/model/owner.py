"""Whose a task is: a name that people type, or `user@host` of the one whose controller it is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentless.errors import UsageError

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,126}")


def check_owner(name: str, said_by: str) -> str:
    """The name; raises UsageError for one that is none. `said_by` is the option or the variable with it."""
    if not _OWNER.fullmatch(name):
        raise UsageError(
            f"{said_by} {name[:80]!r}: an owner has up to 127 letters, digits, '.', '_', '-' and '@', "
            "and begins with a letter or digit"
        )
    return name


def owner_of(environ: Mapping[str, str]) -> str | None:
    """Who asks, as `$AGENTLESS_OWNER` says; None: the owner of the controller."""
    name = environ.get("AGENTLESS_OWNER")
    return check_owner(name, "$AGENTLESS_OWNER") if name else None
