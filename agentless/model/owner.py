"""The owner of a task: a name that was typed, or `user@host` of the controller's user."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentless.errors import UsageError

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,126}")


def check_owner(name: str, said_by: str) -> str:
    """Check and return a name. Raises UsageError. `said_by` is the option or the variable with it."""
    if not _OWNER.fullmatch(name):
        raise UsageError(
            f"{said_by} {name[:80]!r}: use up to 127 letters, digits, '.', '_', '-' and '@', "
            "beginning with a letter or digit"
        )
    return name


def owner_of(environ: Mapping[str, str]) -> str | None:
    """The owner in `$AGENTLESS_OWNER`. None: the user of the controller."""
    name = environ.get("AGENTLESS_OWNER")
    return check_owner(name, "$AGENTLESS_OWNER") if name else None
