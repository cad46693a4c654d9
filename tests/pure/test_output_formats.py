"""`-o`: the formats of lists, fields as columns, and what is refused; colours, and questions."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
import yaml

from agentless.cli import confirm as confirming
from agentless.cli.confirm import confirm
from agentless.cli.formats import TASKS
from agentless.cli.output import be_quiet, confirm_done, has_colours, print_yaml, say
from agentless.cli.progress import progress
from agentless.cli.table import Column
from agentless.errors import Refused, UsageError

TASK = {
    "id": "t1", "node": None, "command": ["sh", "-c", "a b"], "gpus": [0, 1], "labels": {"team": "vision"},
    "mine": True, "intruders": [], "parameters": {}, "name": "", "exit_code": 0,
}  # fmt: skip
COLUMNS = [Column("ID", lambda task: task["id"]), Column("GPUS", lambda task: str(len(task["gpus"])), wide=True)]


def shown(capsys: pytest.CaptureFixture[str], output: str | None, *tasks: Any, as_json: bool = False) -> str:
    TASKS.format(as_json, output).show(list(tasks), COLUMNS, "No tasks")
    out, err = capsys.readouterr()
    return str(out) + (f"[{err}]" if err else "")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (None, "ID\nt1\n"),
        ("wide", "ID  GPUS\nt1  2\n"),
        ("name", "t1\n"),
        ("id,node,gpus", "ID  NODE  GPUS\nt1  -     0,1\n"),
        ("custom-columns=Who:id,CMD:.command", "Who  CMD\nt1   sh -c 'a b'\n"),
        ("labels.team,labels.none,mine", "LABELS.TEAM  LABELS.NONE  MINE\nvision       -            true\n"),
        (
            "exit_code,name,intruders,parameters",
            "EXIT_CODE  NAME  INTRUDERS  PARAMETERS\n0          -     -          -\n",
        ),
    ],
)
def test_a_list_in_each_format(capsys: pytest.CaptureFixture[str], output: str | None, text: str) -> None:
    assert shown(capsys, output, TASK) == text


def test_json_and_yaml_have_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "json", TASK) == shown(capsys, None, TASK, as_json=True)
    assert json.loads(shown(capsys, "json", TASK)) == yaml.safe_load(shown(capsys, "yaml", TASK)) == [TASK]


def test_that_there_is_nothing_is_said_to_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert [shown(capsys, output) for output in (None, "wide", "name", "id", "json", "yaml")] == [
        "[No tasks\n]", "[No tasks\n]", "", "", "[]\n", "[]\n",
    ]  # fmt: skip


def test_one_name_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "name", TASK, TASK) == "t1\n"


@pytest.mark.parametrize("output", ["xml", "id,nodes", "custom-columns=A:b", "id,", "", "A:"])
def test_an_unknown_format_or_field_is_refused_with_all_that_exist(output: str) -> None:
    with pytest.raises(UsageError, match=r"formats are json, yaml, name, wide, and fields .* are id, name, state"):
        TASKS.format(as_json=False, output=output)


@pytest.mark.parametrize("output", ["yaml", "wide", "id"])
def test_json_and_another_format_exclude_each_other(output: str) -> None:
    with pytest.raises(UsageError, match="--json and -o"):
        TASKS.format(as_json=True, output=output)


def test_yaml_shows_no_invisible_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_yaml({"é": "a\u202eb\x1b[31m"})
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert yaml.safe_load(text) == {"é": "a\u202eb\x1b[31m"}


def test_things_that_come_one_by_one_are_lined_up_as_far_as_they_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_one = TASKS.format(as_json=False, output="id,mine").printer(flush=True)
    for name in ("t1", "longer", "t3"):
        print_one(TASK | {"id": name})
    assert capsys.readouterr().out == "ID  MINE\nt1  true\nlonger  true\nt3      true\n"


# --------------------------------------------------------------------------- colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": ""}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, True, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_colours(variables: dict[str, str], on_terminal: bool, in_pipe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for stream, expected in ((Terminal(), on_terminal), (io.StringIO(), in_pipe)):
        monkeypatch.setattr(sys, "stdout", stream)
        assert has_colours() is expected


# --------------------------------------------------------------------------- questions, notes, progress


@pytest.mark.parametrize(("typed", "refused"), [("y\n", False), ("n\n", True), ("\n", True)])
def test_a_question_is_asked_on_a_terminal(typed: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Terminal(typed)
    monkeypatch.setattr(sys, "stdin", keys)
    monkeypatch.setattr(confirming.sys, "stdin", keys)
    if not refused:
        return confirm("Remove it", "Nothing removed")
    with pytest.raises(Refused, match="Nothing removed"):
        confirm("Remove it", "Nothing removed")
    return None


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    confirm("Remove it", "Nothing removed")
    with pytest.raises(UsageError, match="use --force"):
        confirm("Remove it", "Nothing removed", unattended=UsageError("use --force"))


def test_quiet_leaves_out_what_is_only_a_courtesy(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        be_quiet(True)
        say("note")
        confirm_done("removed")
        assert capsys.readouterr() == ("", "")
    finally:
        be_quiet(False)
    say("note")
    confirm_done("removed")
    assert capsys.readouterr() == ("removed\n", "note\n")


def test_progress_is_shown_on_a_terminal_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress() as shown:
        shown.update("layer 1 of 3", name="node1", done=1, total=3)
        assert "node1" in terminal.getvalue()
        assert "layer 1 of 3" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")
    shown.update("too late")
    assert "too late" not in terminal.getvalue()


def test_progress_in_a_pipe_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Waiting") as shown:
        shown.update("layer 1 of 3", name="node1")
        shown.begin("Waiting")
    assert capsys.readouterr() == ("", "")
