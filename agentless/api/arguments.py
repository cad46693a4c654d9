"""Checks the arguments of a method against its type hints, so that a wrong one is refused in a sentence."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cache
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from agentless.errors import UsageError

_WORDS: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    datetime: "a datetime",
    timedelta: "a timedelta",
    os.PathLike: "a path",
    dict: "a dict",
    Iterable: "a list of strings",
    NoneType: "None",
}
_PLAIN = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def check_arguments(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises UsageError for an argument of another type than the method takes.

    Not for `*args` and `**kwargs`: a command and the options of a submit are checked where they are read. What has no
    place in the signature raises Python's own TypeError.
    """
    for name, value in signature(method).bind(*args, **kwargs).arguments.items():
        hint = _hints(getattr(method, "__func__", method)).get(name)
        if hint is not None and not _is(value, hint):
            *most, last = [_in_words(each) for each in _choices(hint)]
            wanted = f"{', '.join(most)} or {last}" if most else last
            raise UsageError(f"{name} must be {wanted}, not {reprlib.repr(value)}")


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hint of each parameter that takes one argument."""
    hints = get_type_hints(function)
    return {name: hints[name] for name, each in signature(function).parameters.items() if _has_hint(each, hints)}


def _has_hint(parameter: Parameter, hints: dict[str, Any]) -> bool:
    return parameter.kind in _PLAIN and parameter.name in hints


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is UnionType else (hint,)


def _is(value: object, hint: Any) -> bool:
    return any(_is_a(value, each) for each in _choices(hint))


def _is_a(value: object, kind: Any) -> bool:
    plain = get_origin(kind) or kind
    if plain is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return plain is bool
    if isinstance(value, str) and re.search(r"[\ud800-\udc7f\udd00-\udfff]", value):
        return False  # a surrogate that does not stand for a byte is in no name
    if plain is Iterable and isinstance(value, list | tuple | set | frozenset):
        return all(_is(each, *get_args(kind)) for each in value)
    return isinstance(value, (int, float) if plain is float else plain)


def _in_words(kind: Any) -> str:
    plain = get_origin(kind) or kind
    return " or ".join(map(repr, get_args(kind))) if plain is Literal else _WORDS[plain]
