"""Every command that a page, an example or the README shows exists, with all its options."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from agentless.cli.app import make
from tests.pages import ROOT, written

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
END = re.compile(r" -- | --$|[;|)>#]|&&")
"""Where the words for agentless end: its command's own command begins, or the shell goes on."""
SHOWN = {
    path: text for path, text in written().items() if "internals" not in path.parts and path.name != "CHANGELOG.md"
}
SHOWN |= {path: f"```sh\n{path.read_text()}```\n" for path in (ROOT / "docs" / "examples").rglob("*.sh")}


def shown(text: str) -> Iterator[str]:
    """What follows `agentless` in the blocks for a shell, and in code on a line."""
    for language, block in FENCED.findall(text):
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()
        for line in lines:
            if language == "sh" or (language == "console" and line.startswith("$ ")):
                yield from re.findall(r"(?:^|[\s(=])agentless (.+)", re.sub(r"(^|\s)#.*", "", line))
    yield from re.findall(r"`agentless ([^`\n]+)`", FENCED.sub("", text))


@functools.cache
def top() -> Any:
    return typer.main.get_command(make([]))


def wrong(typed: str) -> str | None:
    """What does not exist of a command line."""
    found, words = top(), END.split(f"{typed} ")[0].split()
    options = set()
    while True:
        options |= {
            opt for each in found.get_params(typer.Context(found)) for opt in (*each.opts, *each.secondary_opts)
        }
        while words and words[0] in ("-i", "--inventory"):
            del words[:2]
        if not words or words[0] not in getattr(found, "commands", {}):
            break
        found = found.commands[words.pop(0)]
    if found is top() and words and not words[0].startswith("-") and words[0].islower():
        return words[0]
    typed_options = (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word))
    return next((option for option in typed_options if option not in options), None)


@pytest.mark.parametrize("page", sorted(SHOWN), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page):
    assert [(typed, wrong(typed)) for typed in shown(SHOWN[page]) if wrong(typed)] == []


def test_what_does_not_exist_is_noticed():
    text = (
        "```console\n$ agentless subnit 1x\nagentless nonsense\n```\n"
        "`agentless ps --al`, `agentless nodes drain n --reson x` and `agentless submit 1x --gpus 2 -- ls --color`\n"
    )
    assert [wrong(typed) for typed in shown(text)] == ["subnit", "--al", "--reson", None]


def test_there_are_many():
    assert sum(len(list(shown(text))) for text in SHOWN.values()) > 200
