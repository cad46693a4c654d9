"""The few Go templates that `docker --format` is given.

They are `{{.A.B}}`, `{{json .A.B}}`, `{{index .A "key"}}`, `{{.Label "key"}}` and `{{if not .A}}…{{end}}`, and print
what Docker prints. Anything else is an error, since half an answer would be worse than none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_UNLESS = re.compile(r"\{\{\s*if not \.(\w+)\s*\}\}(.*?)\{\{\s*end\s*\}\}", re.DOTALL)
_ACTION = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_EXPRESSION = re.compile(r'(?:(json|index)\s+)?\.([\w.]*)(?:\s+"([^"]*)")?')


class BadTemplate(Exception):
    """A template that asks for something that is not there."""


def render(template: str, value: Mapping[str, object]) -> str:
    """The template filled in from `value`."""
    chosen = _UNLESS.sub(lambda part: "" if _walk(value, part[1]) else part[2], template)
    return _ACTION.sub(lambda action: _evaluate(action[1], value), chosen)


def _evaluate(expression: str, value: Mapping[str, object]) -> str:
    match = _EXPRESSION.fullmatch(expression)
    if not match:
        raise BadTemplate(f"<{expression}>: not known to the simulation")
    function, path, key = match.groups()
    label = path == "Label" and key is not None and not function
    found = _walk(value, "Labels" if label else path)
    if function == "json":
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    if function == "index" or label:
        return str(found.get(key, "")) if isinstance(found, Mapping) else ""
    return str(found).lower() if isinstance(found, bool) else str(found)


def _walk(value: object, path: str) -> object:
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping) or name not in value:
            raise BadTemplate(f'template: :1:2: executing "" at <.{path}>: map has no entry for key "{name}"')
        value = value[name]
    return value
