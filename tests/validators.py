"""Validators of the HTTP API are made once in a process: a test starts a controller anew, with the same requests."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from fastapi._compat import v2
from pydantic import TypeAdapter

_made: dict[tuple[Any, str], TypeAdapter[Any]] = {}


def make_once() -> None:
    """From now on, in this process and in those that it forks."""
    v2.TypeAdapter = _adapter


def make_all() -> None:
    """Likewise, and now."""
    from agentless.controller.http import api

    make_once()
    api.make(MagicMock())


def _adapter(type_: Any, *, config: Any = None) -> TypeAdapter[Any]:
    """One of a type, with all that is said of it: what it is like besides that is in the words for it."""
    key = type_.__origin__, f"{type_} {config}"
    if key not in _made:
        _made[key] = TypeAdapter(type_, config=config)
    return _made[key]
