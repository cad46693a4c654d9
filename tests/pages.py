"""The pages of the documentation, those that are generated included, as a reader of the site has them."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import typer

from agentless.cli.app import make

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

_FENCED = re.compile(r"^(```+).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]: (\S+)", re.MULTILINE)


@functools.cache
def generated() -> dict[Path, str]:
    """What `docs/generate.py` makes of the program."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {DOCS / path: text for path, text in module.pages().items()}


@functools.cache
def written() -> dict[Path, str]:
    """The files of `docs/`, and those of the top folder."""
    files = [*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
    return {path: path.read_text() for path in sorted(files)}


def links(text: str) -> list[str]:
    """The targets of all links and pictures, outside code."""
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", text))
    return [inline or defined for inline, defined in _LINK.findall(text)]


def anchors(text: str) -> set[str]:
    """The anchors of its headings, as GitHub and the site make them, and those that are written."""
    text = _FENCED.sub("", text)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    return made | set(re.findall(r'<a id="([^"]+)"', text))


@functools.cache
def commands() -> list[str]:
    """The commands that `agentless --help` lists."""
    top = typer.main.get_command(make([]))
    return [name for name in top.list_commands(None) if not top.commands[name].hidden]
