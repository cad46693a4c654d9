"""JSON as the values of `model/view`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

_hints = cache(get_type_hints)


def parse(cls: Callable[..., T], found: Mapping[str, Any], **more: Any) -> T:
    """The value that is `found` as JSON, with `more` fields.

    Unknown fields come from a newer controller and are dropped. Missing ones were unknown to the older version that
    wrote an event: they are None or empty.
    """
    hints = {name: hint for name, hint in _hints(cls).items() if name not in more}
    return cls(**{name: _value(hint, found.get(name, ...)) for name, hint in hints.items()}, **more)


def _value(hint: Any, found: Any) -> Any:
    if get_origin(hint) is UnionType:
        hints = [each for each in get_args(hint) if each is not NoneType]
        return None if found in (None, ...) else found if len(hints) > 1 else _value(hints[0], found)
    if found is ...:
        return hint()
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], each) for each in found)
    if get_origin(hint) is dict:
        return {name: _value(get_args(hint)[1], each) for name, each in found.items()}
    return parse(hint, found) if isinstance(hint, type) and is_dataclass(hint) else found
