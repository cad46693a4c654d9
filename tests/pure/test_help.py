"""`--help` of every command, and the other names of commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from agentless import __version__
from agentless.cli.app import COMMANDS, PANELS, make, run
from agentless.cli.help import first_sentence
from agentless.rules.submit.options import options_of

ROOT: Any = typer.main.get_command(make([]))
LONGEST_NAME = max(map(len, COMMANDS))


def paths(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """The words of every command, also of those that are not listed."""
    yield before
    for name, command in getattr(group, "commands", {}).items():
        yield from paths(command, *before, name)


EVERY = list(paths(ROOT))


def command_at(words: tuple[str, ...]) -> Any:
    found = ROOT
    for word in words:
        found = found.commands[word]
    return found


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def type_(line: str, code: int = 0) -> str:
        assert run(line.split()) == code
        return capsys.readouterr().out

    return type_


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_help_fits_80_columns_and_one_screen(typed, words):
    short = typed(" ".join((*words, "--help"))).splitlines()
    everything = typed(" ".join((*words, "--help-all"))).splitlines()
    assert max(map(len, short + everything)) <= 80
    assert len(short) <= (63 if words == () else 40)


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_argument_and_option_is_described(words):
    command = command_at(words)
    assert command.help
    assert [each.name for each in command.params if not each.hidden and not each.help] == []
    shown = [each for each in command.params if not getattr(each, "is_flag", False)]
    assert [each.name for each in shown if "<" in each.make_metavar(typer.Context(command))] == []


def test_the_list_of_commands_has_a_line_for_each_in_panels(typed):
    lines = typed("--help").splitlines()
    panels: dict[str, list[str]] = {}
    for line in lines[lines.index("Run:") :]:
        if line.endswith(":") and not line.startswith(" "):
            panels[line[:-1]] = []
        elif line.startswith("  "):
            panels[[*panels][-1]].append(line.split()[0])
    assert panels == {panel: [*names] for panel, names in PANELS.items()}
    assert [*panels][:4] == ["Run", "Watch", "Work in a task", "Queue"]
    assert [*panels][4:] == ["Nodes and GPUs", "Environments and files", "Set up"]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_list_says_of_a_command_fits_one_line(name):
    assert 2 + LONGEST_NAME + 2 + len(first_sentence(ROOT.commands[name])) <= 80


def test_submit_shows_the_most_used_options_first_and_all_in_panels(typed):
    short, everything = typed("submit --help"), typed("submit --help-all")
    headings = [line[:-1] for line in everything.splitlines() if line[-1:] == ":" and line[0] != " "]
    assert headings[-7:] == ["Where", "When", "Resources", "Container", "Files", "If it fails", "Output"]
    assert "Slurm cluster (hpc 2xA100)" in " ".join(short.split())
    assert "Slurm cluster" in typed("gpus --help")
    assert short.endswith("All options, such as --nodes and --preemptible: agentless submit --help-all\n")
    for option in options_of("task"):
        assert f" {option.flag} " in everything.replace(",", " ")
        assert bool(re.search(rf"(?m)^  (-\w,|   ) {option.flag}\b", short)) is option.common, option.flag


def test_explain_describes_its_options_as_submit_does(typed):
    assert re.search("--gpu-memory SIZE +Minimum free memory per GPU", typed("explain --help"))
    assert re.search("--policy POLICY +How to choose among matching nodes", typed("explain --help-all"))


@pytest.mark.parametrize("line", ["--help", "submit --help", "nodes drain --help", "nodes --help"])
def test_help_is_a_command_too(typed, line):
    assert typed(f"help {line.removesuffix('--help')}") == typed(line)


def test_version_is_a_command_too(typed):
    assert typed("version") == typed("--version") == f"agentless {__version__}\n"


def test_nothing_typed_is_a_usage_error_with_the_help(typed):
    assert typed("", code=2) == typed("--help")
    assert typed("env", code=2) == typed("env --help")


@pytest.mark.parametrize(
    ("typed_as", "meant"),
    [
        ("ls", "ps"),
        ("list", "ps"),
        ("cancel", "stop"),
        ("delete", "rm"),
        ("attach", "logs"),
        ("describe", "show"),
        ("config", "inventory"),
        ("env ls", "env list"),
        ("volume rm", "volume rm"),
        ("volume delete", "volume rm"),
        ("nodes ls", "nodes list"),
        ("-i lab.yaml ls", "ps"),
        ("--inventory=lab.yaml ls", "ps"),
    ],
)
def test_a_command_has_other_names_that_hands_type(typed, typed_as, meant):
    assert typed(f"{typed_as} --help") == typed(f"{meant} --help")
    name = typed_as.split()[-1]
    if name != meant.split()[-1] and meant != "nodes list":
        assert f" {name}" in typed(f"{meant} --help").partition("\nAlias")[2]
        assert f"\n  {name} " not in typed("--help")


def test_headings_are_bold_on_a_terminal_only(typed, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033[1mUsage:\033[0m" in typed("ps --help")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in typed("ps --help")


def test_the_help_is_as_wide_as_a_narrow_terminal(typed, monkeypatch):
    monkeypatch.setitem(os.environ, "COLUMNS", "60")
    prose = [line for line in typed("run --help").splitlines() if not line.startswith("  agentless ")]
    assert max(map(len, prose)) <= 60
