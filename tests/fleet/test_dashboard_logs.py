"""The log of a task on the dashboard, over a simulated node: what is saved of it, and where."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from agentless.errors import AgentlessError
from agentless.tui.screens.logs.pane import LogPane
from tests.fleet.client import IMAGE
from tests.fleet.eyes import Eyes, looking
from tests.fleet.inhabited import forget_tasks, inhabited
from tests.fleet.world import World
from tests.pauses import pauses


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("fleet"), [NodePlan("n1", 1)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client.found(None)
    yield client
    forget_tasks(client)


def ended(client: Client, script: str) -> str:
    """A task that has said all that it says."""
    asked = {"targets": ["n1::0"], "spec": {"command": ["sh", "-c", script], "image": IMAGE, "needs": {"nodes": []}}}
    (start,) = client.post("/v1/tasks", asked)
    client.wait(start["task"]["id"])
    return start["task"]["id"]


@contextlib.asynccontextmanager
async def reading(client: Client, script: str) -> AsyncIterator[Eyes]:
    """Somebody who has read the log of a task to its end."""
    task = ended(client, script)
    async with looking((100, 20)) as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("l")
        await eyes.see("No more output")
        yield eyes


@pytest.mark.slow
async def test_a_file_that_is_there_is_never_written_over(client, tmp_path):
    there = tmp_path / "results"
    there.write_text("of a month")
    async with reading(client, "echo hello") as eyes:
        await eyes.press("X", "ctrl+u", str(there), "enter")
        await eyes.see(lambda: "already exists; choose another name" in eyes.messages)
        assert there.read_text() == "of a month"


async def test_after_a_name_that_is_taken_another_one_can_be_typed(client, tmp_path):
    (tmp_path / "results").touch()
    async with reading(client, "echo hello") as eyes:
        await eyes.press("X", "ctrl+u", str(tmp_path / "results"), "enter")
        await eyes.see(lambda: "already exists" in eyes.messages)
        await eyes.press("2", "enter")
        await eyes.see(lambda: "Saved to" in eyes.messages)
        assert (tmp_path / "results2").read_bytes() == b"hello\n"


async def test_a_name_that_no_file_can_have_is_told_in_a_sentence(client):
    async with reading(client, "echo hello") as eyes:
        await eyes.press("X")
        line = eyes.app.screen.query_one("Input")
        for name, says in (
            ("~nobody123/x", "is not a file name: "),
            ("a\0b", "is not a file name: "),
            ("/nowhere/x", "cannot be written: No such file or directory"),
        ):
            eyes.notes.clear()
            line.value = name
            await eyes.press("enter")
            await eyes.see(lambda says=says: says in eyes.messages)
            assert line.has_class("-open")


async def save(eyes: Eyes, path: Path) -> None:
    """They save the log that they see."""
    await eyes.press("X", "ctrl+u", str(path), "enter")
    await eyes.see(lambda: "Saved to" in eyes.messages)


def _numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(1, last + 1))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (r"seq 1 9999; printf '\033[31mred\033[0m 1\r2\377\000'", _numbers(9999) + b"\x1b[31mred\x1b[0m 1\r2\xff\0"),
        *(
            pytest.param(script, said, marks=pytest.mark.slow)
            for script, said in (
                ("printf 'no end'", b"no end"),
                (r"printf '\033[31mred\033[0m 1\r2\r\n'", b"\x1b[31mred\x1b[0m 1\r2\r\n"),
                (r"printf '\343\201'; sleep 0.2; printf '\202'", "あ".encode()),
                (r"printf '\377\000'", b"\xff\0"),
                (r"head -c 100000 /dev/zero | tr '\0' x", b"x" * 100_000),
                ("seq 1 150000", _numbers(150_000)),
            )
        ),
    ],
    ids=["all", "no newline", "colours", "parted characters", "no text", "a long line", "many lines"],
)
async def test_a_saved_log_is_what_the_task_wrote_byte_by_byte(client, tmp_path, script, said):
    async with reading(client, script) as eyes:
        await save(eyes, tmp_path / "log")
        assert (tmp_path / "log").read_bytes() == said


async def test_where_one_stream_is_shown_that_one_is_saved_and_how_much_is_said(client, tmp_path):
    async with reading(client, "echo out; head -c 2048 /dev/zero >&2") as eyes:
        await eyes.press("2")
        await save(eyes, tmp_path / "log")
        assert (tmp_path / "log").read_bytes() == b"\0" * 2048
        assert eyes.messages.endswith("log: 2 KiB")


async def test_of_a_log_that_does_not_come_no_file_is_left(client, tmp_path):
    async with reading(client, "echo hello") as eyes:
        forget_tasks(client)
        await eyes.press("X", "ctrl+u", str(tmp_path / "log"), "enter")
        await eyes.see(lambda: "The log was not saved" in eyes.messages)
        await eyes.see(lambda: not (tmp_path / "log").exists())


@pytest.mark.slow
async def test_a_browser_is_given_the_same_bytes(client, monkeypatch):
    async with reading(client, "printf '\\033[31mred'") as eyes:
        given = []
        monkeypatch.setattr(type(eyes.app), "is_web", True)
        monkeypatch.setattr(eyes.app, "deliver_binary", lambda file, save_filename: given.append((file, save_filename)))
        await eyes.press("X")
        await eyes.see(lambda: given)
        ((file, name),) = given
        with file:
            file.seek(0)
            assert (file.read(), name) == (b"\x1b[31mred", f"{eyes.app.screen.about_task['id']}.log")


def kept(client: Client, script: str) -> str:
    """A task whose log the controller has copied."""
    task = ended(client, script)
    pause = pauses()
    while True:
        try:
            client.get(f"/v1/tasks/{task}/log")
        except AgentlessError as error:
            assert "is not kept here" in str(error)  # noqa: PT017 - until it is
            time.sleep(next(pause))
        else:
            return task


async def test_a_kept_log_is_read_by_pages_and_searched_by_the_controller(client):
    task = kept(client, "seq 1 150000; printf '\\033[32mdone' >&2")
    async with looking((100, 20)) as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("l")
        await eyes.see("150,001 lines", "No more output", "150000", "done")
        pane = eyes.app.screen.query_one(LogPane)
        assert pane.spool is None
        await eyes.press("slash", "77777", "enter")
        await eyes.see("77778", "/77777: 1 of 1", lambda: pane.log_lines.match == 77_776)
        await eyes.press("n")
        await eyes.see(lambda: pane.log_lines.match == 77_776)
        await eyes.press("2")
        await eyes.see("1 line ", "only stderr", lambda: "150000" not in eyes.text)


def test_lines_of_a_kept_log_are_given_by_number(client):
    path = f"/v1/tasks/{kept(client, 'seq 1 5; echo oops >&2')}/log"
    about = client.get(path)
    assert (about["complete"], about["lines"], about["stdout_lines"], about["stderr_lines"]) == (True, 6, 5, 1)
    assert [line["text"] for line in client.get(f"{path}/lines", first=1, count=2, only=1)["lines"]] == ["2", "3"]
    assert client.get(f"{path}/lines", first=5, count=2, only=1, back=True) == {
        "first": 3, "lines": [{"stream": 1, "text": "4"}, {"stream": 1, "text": "5"}],
    }  # fmt: skip
    assert client.get(f"{path}/lines", only=2)["lines"] == [{"stream": 2, "text": "oops"}]
    assert client.get(f"{path}/search", text="OOPS", only=2) == {"line": 0, "go_on": None}
    assert client.get(f"{path}/search", text="nowhere") == {"line": None, "go_on": None}
    assert client.get(f"{path}/matches", text="OOPS", only=2) == {"lines": [0], "go_on": None}


async def test_the_end_of_a_log_that_is_not_complete_here_goes_on_while_it_is_read(client, tmp_path):
    script = f"seq 1 3000; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo last"
    asked = {"targets": ["n1::0"], "spec": {"command": ["sh", "-c", script], "image": IMAGE, "needs": {"nodes": []}}}
    (start,) = client.post("/v1/tasks", asked)
    async with looking((100, 20)) as eyes:
        await eyes.press("4")
        await eyes.see(lambda: eyes.state(start["task"]["id"]) == "running")
        await eyes.press("l")
        await eyes.see("3,000 lines", "Following", "3000")
        pane = eyes.app.screen.query_one(LogPane)
        assert pane.has_times
        await eyes.press("J", "1", "enter")
        await eyes.see("Paused; press f to follow", "1-17 of 3,000 lines")
        (tmp_path / "go").touch()
        await eyes.see("of 3,001 lines")
        await eyes.press("f")
        await eyes.see("last", "3,001 lines", "No more output")
