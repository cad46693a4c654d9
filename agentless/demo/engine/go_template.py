"""The few Go templates that `docker --format` is given.

They are `{{.A.B}}`, `{{json .A.B}}`, `{{index .A "key"}}`, `{{.Label "key"}}`, `{{printf "%.9s" .A}}`, `{{or .A ""}}`,
with any of these in parentheses in the place of a field, and `{{if not .A}}…{{end}}`, and print what Docker prints.
Anything else is an error, since half an answer would be worse than none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_UNLESS = re.compile(r"\{\{\s*if not \.(\w+)\s*\}\}(.*?)\{\{\s*end\s*\}\}", re.DOTALL)
_ACTION = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_TOKEN = re.compile(r'"[^"]*"|[()]|[^\s()"]+')
_CUT = re.compile(r'"%\.(\d+)s"')


class BadTemplate(Exception):
    """A template that asks for something that is not there."""


def render(template: str, value: Mapping[str, object]) -> str:
    """The template filled in from `value`."""
    chosen = _UNLESS.sub(lambda part: "" if _walk(value, part[1]) else part[2], template)
    return _ACTION.sub(lambda action: _evaluate(action[1], value), chosen)


def _evaluate(expression: str, value: Mapping[str, object]) -> str:
    tokens = _TOKEN.findall(expression)
    found = _call(tokens, value)
    if tokens:
        raise BadTemplate(f"<{expression}>: not supported by the simulation")
    return str(found).lower() if isinstance(found, bool) else str(found)


def _call(tokens: list[str], value: Mapping[str, object]) -> object:
    """What the next function and its arguments, or the next field, come to; takes them off the tokens."""
    match tokens:
        case ["json", *_]:
            del tokens[0]
            return json.dumps(_operand(tokens, value), separators=(",", ":"), ensure_ascii=False)
        case ["index", *_]:
            del tokens[0]
            return _entry(_operand(tokens, value), tokens)
        case ["printf", form, *_] if cut := _CUT.fullmatch(form):
            del tokens[:2]
            return str(_operand(tokens, value))[: int(cut[1])]
        case ["or", *_]:
            del tokens[0]
            first, other = _operand(tokens, value), tokens.pop(0) if tokens else ""
            return first or other.strip('"')
        case [".Label", *_]:
            del tokens[0]
            return _entry(_walk(value, "Labels"), tokens)
        case _:
            return _operand(tokens, value)


def _operand(tokens: list[str], value: Mapping[str, object]) -> object:
    match tokens:
        case ["(", *_]:
            del tokens[0]
            found = _call(tokens, value)
            if tokens[:1] == [")"]:
                del tokens[0]
                return found
        case [field, *_] if field.startswith("."):
            del tokens[0]
            return _walk(value, field)
    raise BadTemplate(f"<{' '.join(tokens)}>: not supported by the simulation")


def _entry(found: object, tokens: list[str]) -> str:
    key = tokens.pop(0) if tokens else ""
    return str(found.get(key.strip('"'), "")) if isinstance(found, Mapping) else ""


def _walk(value: object, path: str) -> object:
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping) or name not in value:
            raise BadTemplate(f'template: :1:2: executing "" at <.{path}>: map has no entry for key "{name}"')
        value = value[name]
    return value
