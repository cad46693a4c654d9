"""YAML as plain data with the place of every key and value, for messages of later checks.

Only the structure is parsed. Every scalar stays text (an empty one, `~` and `null` are None), which the schema parses
later. So `user: no`, `rack: 012` and `time: 1:30` are texts, and not false, 10 and 90 as in YAML 1.1. Anchors and `<<`
work; keys are text; a key twice in one mapping is an error. Texts with line breaks are errors unless they are allowed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_VALUES = 100_000
"""The most values. With aliases, a few lines could expand to more than memory holds."""
MAX_DEPTH = 20
MAX_MISTAKES = 100
"""The most reported mistakes. More are one mistake made many times."""

_FAST = getattr(yaml, "CSafeLoader", None)
_LARGE = 16 * 1024
"""Characters from which on it is worth it."""
_TAG = "tag:yaml.org,2002:"
_BARE_TAG = re.compile(r"(?:&\S+\s+)?!(?=[\s,\[\]{}]|$)")
"""A tag without a name. What an empty value with it is differs between parsers."""
_BOM = "\ufeff"
_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map")}
_PLAIN_WORDS = (
    ("\\t", "a tab in the indentation; use spaces"),
    ("mapping values are not allowed", "unexpected ':'; check the indentation, or quote the value"),
    ("could not find expected ':'", "missing ':' after this key"),
    ("expected <block end>", "the indentation does not match the lines above"),
    ("expected ',' or '}'", "missing ',' or closing '}' before this"),
    ("expected ',' or ']'", "missing ',' or closing ']' before this"),
    ("unexpected end of stream", "missing closing quote"),
    ("found undefined alias", "alias (*name) without an anchor (&name) before it"),
    ("second occurrence", "duplicate anchor (&name); use another name"),
    ("found another document", "a second document begins ('---'); write it into a file of its own"),
    ("special characters are not allowed", "invalid character; is this a text file?"),
)
_BEGUN_EARLIER = ("could not find expected ':'", "unexpected end of stream")

Where = tuple[str | int, ...]
"""The path of a value: keys and list indices from the top."""


class Mistake(NamedTuple):
    """A mistake at a line and column, both from 1. `where` is empty for the whole file."""

    line: int
    column: int
    where: Where
    text: str


class BrokenYaml(Exception):
    """The text is not valid YAML. It has the mistake that stopped the parser."""

    def __init__(self, line: int, column: int, text: str) -> None:
        super().__init__(text)
        self.problem = Mistake(line, column, (), text)


@dataclass(slots=True)
class Marked:
    """The data (mappings, lists, str and None), the place of each key and value, and the mistakes."""

    data: object = None
    keys: dict[Where, tuple[int, int]] = field(default_factory=dict)
    values: dict[Where, tuple[int, int]] = field(default_factory=dict)
    problems: list[Mistake] = field(default_factory=list)


def read_yaml(text: str, *, line_breaks: bool = False) -> Marked:
    """The YAML document in `text`; its values may have `line_breaks`. Raises only BrokenYaml."""
    text = text.removeprefix(_BOM)
    reader = _Reader(text, "\n\t" if line_breaks else "")
    try:
        if _BOM in text:
            raise yaml.reader.ReaderError("", text.index(_BOM), 0xFEFF, "unicode", "special characters are not allowed")
        node = _composed(text)
        if node is not None:
            reader.marked.data = reader.read(node, ())
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise BrokenYaml(line, column, _plain(error.reason)) from error
    except yaml.MarkedYAMLError as error:
        problem = error.problem or ""
        mark = error.context_mark if any(begin in problem for begin in _BEGUN_EARLIER) else error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise BrokenYaml(line, column, _plain(problem)) from error
    except RecursionError as error:
        raise BrokenYaml(1, 1, "lists and mappings are nested too deeply") from error
    except (ValueError, OverflowError) as error:
        raise BrokenYaml(1, 1, "an escape in double quotes, or a number, is out of range") from error
    return reader.marked


def _composed(text: str) -> Node | None:
    """The nodes of a text. The parser in C is ten times as fast; that in Python tells better what is wrong."""
    if _FAST is not None and len(text) > _LARGE:
        with contextlib.suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=_FAST)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def lines_of(path: object, problems: Iterable[Mistake]) -> str:
    """One line per mistake, as `FILE:LINE:COLUMN: PATH: text`. A mistake that aliases repeat is reported once."""
    once: dict[tuple[int, int, str], Mistake] = {}
    for problem in sorted(problems, key=lambda each: each[:2]):
        once.setdefault((problem.line, problem.column, problem.text), problem)
    lines = [
        f"{path}:{p.line}:{p.column}: " + (f"{_path(p.where)}: " if p.where else "") + p.text for p in once.values()
    ]
    if len(lines) > MAX_MISTAKES:
        lines[MAX_MISTAKES:] = [f"{path}: more errors; correct these {MAX_MISTAKES} first"]
    return "\n".join(lines)


def _path(where: Where) -> str:
    """A path like `nodes.node2.exclude_gpus[1]`. Unusual keys are quoted."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[\w.-]{1,60}", part) else shown(part))
    return text


def shown(value: object) -> str:
    """A value, for a message."""
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = str(value)
            return repr(text if len(text) <= 60 else text[:60] + "…")


def _plain(problem: str) -> str:
    return next((ours for theirs, ours in _PLAIN_WORDS if theirs in problem), f"invalid YAML: {problem}")


class _Reader:
    def __init__(self, text: str, allowed: str) -> None:
        self.marked = Marked()
        self._text = text
        self._left = MAX_VALUES
        self._allowed = str.maketrans("", "", allowed)

    def read(self, node: Node, where: Where) -> object:
        """The data of a YAML node, with all places marked."""
        self._spend(node, where)
        self.marked.values[where] = _place(node)
        if node.tag not in _TAGS:
            self._problem(node, where, f"unknown tag {node.tag}; write the plain value")
        elif _BARE_TAG.match(self._text, node.start_mark.index):
            self._problem(node, where, "a '!' without a name; write the plain value")
        if isinstance(node, ScalarNode):
            return self._scalar(node, where)
        if isinstance(node, SequenceNode):
            return [self.read(item, (*where, index)) for index, item in enumerate(node.value)]
        found: dict[str, object] = {}
        for key, value in self._pairs(node, where):
            self.marked.keys[(*where, key.value)] = _place(key)
            found[key.value] = self.read(value, (*where, key.value))
        return found

    def _scalar(self, node: ScalarNode, where: Where) -> str | None:
        text: str = node.value
        if not text.translate(self._allowed).isprintable():
            self._problem(node, where, f"{text[:60]!r} has a line break or another unprintable character")
        return None if node.tag == _TAG + "null" else text

    def _pairs(self, mapping: Node, where: Where) -> Iterator[tuple[ScalarNode, Node]]:
        """Keys with their values. Keys of the mapping itself override those from `<<`."""
        self._spend(mapping, where)
        own: dict[str, tuple[ScalarNode, Node]] = {}
        merged: list[Node] = []
        for key, value in mapping.value:
            if key.tag == _TAG + "merge":
                merged += value.value if isinstance(value, SequenceNode) else [value]
            elif not isinstance(key, ScalarNode):
                self._problem(key, where, "a key must be a word, not a list or a mapping")
            elif key.value in own:
                first = own[key.value][0].start_mark.line + 1
                self._problem(key, (*where, key.value), f"duplicate key, first in line {first}; keep one")
            else:
                own[key.value] = (key, value)
        for other in merged:
            if isinstance(other, MappingNode):
                for key, value in self._pairs(other, where):
                    self._spend(key, where)  # a few lines can merge a large mapping a thousand times
                    own.setdefault(key.value, (key, value))
            else:
                self._problem(other, where, "'<<' needs a mapping, like *name for one with the anchor &name")
        yield from own.values()

    def _problem(self, node: Node, where: Where, text: str) -> None:
        self._spend(node, where)
        self.marked.problems.append(Mistake(*_place(node), where, text))

    def _spend(self, node: Node, where: Where) -> None:
        self._left -= 1
        if self._left < 0 or len(where) > MAX_DEPTH:
            raise BrokenYaml(*_place(node), "aliases or nesting make this too large; write the values without them")


def _place(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
