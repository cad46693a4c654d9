"""`{{ … }}` in the values of a file: expressions of Jinja on its parameters, and nothing that could run away.

The file may be somebody else's. So an expression cannot call anything, and has only the filters below, whose results
are bounded. A name that is not set is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.environment import TemplateExpression
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from agentless.errors import UsageError

MAX_TEXT = 64 * 1024
"""The limit of a value, in characters."""
MAX_PARTS = 500
"""The limit of names, numbers and operators in a value."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const, nodes.List,
    nodes.Tuple, nodes.Filter, nodes.Test, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
    nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Concat,
    nodes.Slice,
)  # fmt: skip
_TESTS = ("none", "string", "number", "in", "eq", "ne", "lt", "le", "gt", "ge", "odd", "even")
_FILTERS = ("lower", "upper", "trim", "int", "float", "round", "abs", "length", "first", "last", "min",
            "max", "sort", "unique", "list")  # fmt: skip
_LITERAL = "for the literal text, use {{ '{{' }}"


def typed(value: object) -> object:
    """The value of a parameter: a text that is exactly how a number or a truth value is written becomes that."""
    match value:
        case "true" | "false":
            return value == "true"
        case str() if found := _NUMBER.fullmatch(value):
            number: object = float(value) if found[2] else int(value)
            return number if str(number) == value else value
        case list():
            return [typed(each) for each in value]
        case dict():
            return {key: typed(each) for key, each in value.items()}
        case _:
            return value


def render(text: str, names: Mapping[str, Any]) -> Any:
    """The text with its expressions filled in. Raises UsageError.

    A text that is one expression may become a list or a mapping of texts.
    """
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return text
    if len(text) > MAX_TEXT:
        raise UsageError(f"has {len(text):,} characters; the limit of a text with {{{{ … }}}} is {MAX_TEXT:,}")
    try:
        found = _compiled(text)(names)
    except TemplateSyntaxError as error:
        raise UsageError(f"{str(error.message).rstrip('.')}; {_LITERAL}") from None
    except UsageError:
        raise
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UsageError(f"cannot fill in {_shown(text)}: {error}") from None
    except (RecursionError, MemoryError, SyntaxError):
        raise UsageError(f"{_shown(text)} is nested too deeply") from None
    return found


class _Environment(SandboxedEnvironment):
    intercepted_binops = frozenset(["*", "%", "+"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Only keys of mappings: values have no methods here."""
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            return obj[argument]
        except (LookupError, TypeError):
            known = ", ".join(map(str, obj)) if isinstance(obj, Mapping) else ""
            hint = f"; known: {known}" if known else ""
            raise UsageError(f"{str(argument)[:60]!r} is not set{hint[:200]}") from None

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Numbers only for `*` and `%`: with texts they could make anything long."""
        kinds = (int, float) if operator in "*%" else (int, float, str, list)
        if not isinstance(left, kinds) or not isinstance(right, kinds):
            raise UsageError(f"{left!r:.40} {operator} {right!r:.40}: not numbers")
        if isinstance(left, (str, list)) and isinstance(right, (str, list)):
            _bounded("", len(left) + len(right))
        found = super().call_binop(context, operator, left, right)
        if isinstance(found, int) and abs(found) > 2**63:
            raise UsageError("a number is too large")
        return found


def _finalize(value: Any) -> Any:
    """What an expression may become as a part of a text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return value
    kind = "empty" if value is None else f"a {type(value).__name__}"
    raise UsageError(f"{_shown(str(value))} is {kind}, which cannot be a part of a text")


def _bounded(text: str, size: int) -> str:
    if size > MAX_TEXT:
        raise UsageError(f"a value would have {size:,} characters; the limit is {MAX_TEXT:,}")
    return text


def _replace(text: Any, old: str, new: str) -> str:
    words = str(text)
    _bounded(words, len(words) + words.count(old) * len(new))
    return words.replace(old, new)


def _join(values: Iterable[Any], between: str = "") -> str:
    words = [str(_finalize(each)) for each in values]
    _bounded("", sum(map(len, words)) + len(words) * len(between))
    return between.join(words)


def _tojson(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _bounded(text, len(text))


def _environment() -> _Environment:
    environment = _Environment(
        optimized=False, undefined=StrictUndefined, finalize=_finalize, keep_trailing_newline=True
    )
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters |= {"replace": _replace, "join": _join, "tojson": _tojson}
    environment.tests = {name: environment.tests[name] for name in _TESTS}
    environment.globals = {}
    return environment


_JINJA = _environment()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Callable[[Mapping[str, Any]], Any]:
    """What fills in the text. Raises UsageError and TemplateSyntaxError."""
    if any(kind == "comment_begin" for _, kind, _ in _JINJA.lex(text)):
        raise UsageError(f"{_shown(text)}: comments are not possible in a value; {_LITERAL}")
    tree = _JINJA.parse(text)
    parts = [tree, *tree.find_all(nodes.Node)]
    if len(parts) > MAX_PARTS:
        raise UsageError(f"{_shown(text)} has {len(parts):,} parts; the limit is {MAX_PARTS}")
    for node in parts:
        if not isinstance(node, _ALLOWED):
            raise UsageError(
                f"{_shown(text)}: only expressions in {{{{ … }}}}, without calls, are possible; {_LITERAL}"
            )
    only = _only_expression(tree)
    if only is None:
        template = _JINJA.from_string(_BoundedJoins().visit(tree))
        return lambda names: _filled(template, names)
    body: list[nodes.Node] = [nodes.Assign(nodes.Name("result", "store"), only, lineno=1)]
    checked = _BoundedJoins().visit(nodes.Template(body, lineno=1).set_environment(_JINJA))
    expression = TemplateExpression(_JINJA.from_string(checked), undefined_to_none=False)
    return lambda names: _plain(expression(**names))


class _BoundedJoins(NodeTransformer):
    """Makes `a ~ b` the filter `join`, whose results are bounded."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        parts = self.generic_visit(nodes.List(node.nodes, lineno=node.lineno))
        joined = nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)
        joined.set_environment(_JINJA)
        return joined


def _filled(template: Template, names: Mapping[str, Any]) -> str:
    found, size = list[str](), 0
    for part in template.generate(names):
        size += len(part)
        found.append(_bounded(part, size))
    return "".join(found)


def _only_expression(tree: nodes.Template) -> nodes.Expr | None:
    """The expression, if the text is nothing else."""
    outputs = [each for each in tree.body if isinstance(each, nodes.Output)]
    parts = [part for output in outputs for part in output.nodes]
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData) else None


def _plain(value: Any) -> Any:
    """The value with texts for numbers and truth values, as they would have been written in the file."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return str(_finalize(value))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")
