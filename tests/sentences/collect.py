"""Finds the sentences: strings with words in Python sources, and the texts of scripts, web pages and the example."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIST = Path(__file__).parent / "sentences.txt"
BANNED = Path(__file__).parent / "banned.txt"

_HEAD = "Every sentence that the program can show, by file. Written by `make sentences`; do not edit.\n"
_PROSE = re.compile(r"[A-Za-z]{2}.* |(?:^| ).*[A-Za-z]{2}", re.DOTALL)
_PATTERN = re.compile(
    r"\(\?|\[\^|\.\*|\\[dSw]|\)\?|^\^|^(SELECT|INSERT|CREATE|DELETE|UPDATE|PRAGMA|BEGIN|ATTACH|ALTER|DROP) "
)
"""Regular expressions and SQL."""
_LABEL = re.compile(r"[A-Z][a-z]+|[A-Z]{2,}s?")
_SCREENS = ("agentless/cli/", "agentless/tui/")
"""Where a single word is a heading or a label, too."""
_NOT_READ = {"compile", "execute", "executemany", "executescript", "Literal", "Section", "TypeVar", "getLogger"}
"""Calls and types whose strings are patterns, SQL or scripts."""
_SCRIPT = re.compile(r"_?[A-Z_]*(SCRIPT|SQL|TABLE|LIMITED|CSS|SCHEMA)[A-Z_]*")
"""Names of constants that hold a script, SQL or a style sheet."""
_ROUTE = {"get", "post", "put", "delete", "websocket", "command", "callback"}
_ECHO = re.compile(r"""\b(?:echo|printf) (?:'%s[^']*' )?(?:'([^']* [^']*)'|"([^"]* [^"]*)")""")
_QUOTED = re.compile(r"""'([^'\n]+)'|"([^"\n]+)"|`([^`]+)`""")
_TAG = re.compile(r"<[^>]*>")


def sentences() -> str:
    """The whole list, as it stands in `sentences.txt`."""
    parts = [_HEAD]
    for name, found in _files():
        if lines := list(dict.fromkeys(line for text in found if (line := " ".join(text.split())))):
            parts.append("\n".join((f"## {name}", *lines, "")))
    return "\n".join(parts)


def _files() -> Iterator[tuple[str, Iterator[str]]]:
    for path in sorted((ROOT / "agentless").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        yield name, of_python(path.read_text("utf-8"), labels=name.startswith(_SCREENS))
    for path in sorted((ROOT / "templates").rglob("*.j2")):
        yield str(path.relative_to(ROOT)), of_script(path.read_text("utf-8"))
    for path in sorted((ROOT / "agentless/web/page").glob("*.*")):
        text = path.read_text("utf-8")
        if path.suffix in (".html", ".js"):
            yield str(path.relative_to(ROOT)), of_html(text) if path.suffix == ".html" else of_javascript(text)
    example = ROOT / "inventory.example.yaml"
    yield example.name, (line.partition("# ")[2] for line in example.read_text("utf-8").splitlines())


def of_script(text: str) -> Iterator[str]:
    """The texts that a script for a node prints."""
    return (one or other for one, other in _ECHO.findall(text) if _is_prose(one or other) and "%s" not in one + other)


def of_html(text: str) -> Iterator[str]:
    """The visible texts of a page."""
    return (html.unescape(line) for line in _TAG.sub("\n", text).split("\n") if _is_prose(line.strip()))


def of_javascript(text: str) -> Iterator[str]:
    """The strings of a script in a page."""
    code = re.sub(r"^\s*(?://|/?\*).*$", "", text, flags=re.MULTILINE)
    return (found for match in _QUOTED.findall(code) if _is_prose(found := "".join(match)))


def of_python(text: str, *, labels: bool = False) -> Iterator[str]:
    """The strings of a module that a person can read; with `labels` also single words that begin with a capital."""
    tree = ast.parse(text)
    commands = set(_commands(tree))
    for node in _read(tree, commands):
        found = _text(node)
        if _is_prose(found) or (labels and _LABEL.fullmatch(found)):
            yield found


def _is_prose(text: str) -> bool:
    text = text.strip()
    return " " in text and bool(_PROSE.search(text)) and not _PATTERN.search(text)


def _commands(tree: ast.AST) -> Iterator[str]:
    """Functions whose docstring is shown: commands and requests, by the name or as decorated."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and _called(node.func) in _ROUTE:
            yield from (argument.id for argument in node.args if isinstance(argument, ast.Name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
            if any(_called(call) in _ROUTE for call in calls):
                yield node.name


def _called(node: ast.AST) -> str:
    """The name of a function that is called, or of a type that has parameters."""
    return _name(node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else node)


def _name(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _read(node: ast.AST, commands: set[str]) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The strings below a node, without docstrings, patterns and scripts."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield node
    if isinstance(node, ast.Call | ast.Subscript) and _called(node) in _NOT_READ:
        return
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and _SCRIPT.fullmatch(target.id) for target in targets):
            return
    shown = getattr(node, "name", None) in commands or _is_model(node)
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant):
            continue
        if not is_docstring or (shown and child is node.body[0]):
            yield from _read(child, commands)


def _is_model(node: ast.AST) -> bool:
    """Whether it is a schema, whose docstring is a description."""
    return isinstance(node, ast.ClassDef) and any(_called(base) in ("BaseModel", "_Keys") for base in node.bases)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_text(part) if isinstance(part, ast.Constant) else "{" + _hole(part) + "}" for part in node.values)


def _hole(part: ast.AST) -> str:
    """The name in a hole; of an expression that is none, its first name."""
    return _name(next((each for each in ast.walk(part) if isinstance(each, ast.Name | ast.Attribute)), None)) or "…"
