"""What hands type about tasks: ids alone, a list that stays, all at once, and the words of other tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless import Cluster, paths
from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from tests import ready
from tests.fleet.inhabited import forget_tasks, inhabited
from tests.fleet.world import World
from tests.keyboard import at_terminal
from tests.tmux import Tmux

AGENTLESS = [sys.executable, "-m", "agentless"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("typed"), [NodePlan("n1", 2)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client(paths.state_dir(), world.fleet.inventory)
    yield client
    forget_tasks(client)


@pytest.fixture
def tasks(client: Client) -> list[str]:
    """Two tasks, one of them somebody else's."""
    cluster = Cluster()
    mine = cluster.submit("sh", "-c", "echo hello; exec sleep 600", target="n1", name="train")
    return [mine.id, cluster.submit("sleep", "600", target="n1", owner="bob@lab").id]


def type_(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = ready.agentless(*words)
    assert done.returncode == code, done.stderr
    return done


def live() -> list[str]:
    return type_("ps", "-q").stdout.split()


def test_quiet_prints_the_ids_and_nothing_else(tasks):
    assert sorted(live()) == sorted(tasks)
    assert type_("ls", "--mine", "--quiet").stdout == f"{tasks[0]}\n"


def test_nothing_live_is_no_line_in_quiet(client):
    done = type_("ps", "-q")
    assert (done.stdout, done.stderr) == ("", "")


def test_all_are_stopped_only_after_a_question_that_says_whose_they_are(tasks):
    with at_terminal([*AGENTLESS, "stop", "--all"], os.environ) as keyboard:
        keyboard.sees(b"Stop 2 tasks (1 of ")
        keyboard.sees(b"1 of bob@lab")
        keyboard.sees(b"[y/N]")
        keyboard.type(b"n\n")
        keyboard.sees(b"Nothing stopped")
        assert keyboard.ended() == 3
    assert len(live()) == 2
    with at_terminal([*AGENTLESS, "stop", "--all"], os.environ) as keyboard:
        keyboard.sees(b"[y/N]")
        keyboard.type(b"y\n")
        assert keyboard.ended() == 0
    assert live() == []


@pytest.mark.slow
def test_without_a_terminal_all_are_stopped_with_yes_only(tasks):
    refused = type_("stop", "--all", code=2)
    assert "--all asks before it stops 2 tasks (1 of " in refused.stderr
    assert "--yes" in refused.stderr
    assert len(live()) == 2
    type_("stop", "--all", "--yes")
    assert live() == []


def test_all_of_mine_leaves_those_of_others(tasks):
    type_("cancel", "--all", "--mine", "--yes")
    assert live() == tasks[1:]


def test_with_nothing_live_there_is_nothing_to_ask(client):
    assert type_("stop", "--all").stderr == "No live tasks\n"


@pytest.mark.parametrize(
    "words", [["exec", "train", "echo", "-n", "a b"], ["exec", "-it", "train", "--", "echo", "-n", "a b"]]
)
def test_a_command_in_a_task_is_typed_as_for_docker(tasks, words):
    assert type_(*words).stdout == "a b"


def test_attach_follows_the_output(client):
    task = Cluster().submit("sh", "-c", "echo hello; sleep 0.1; echo bye", target="n1").id
    assert type_("attach", task).stdout == "hello\nbye\n"


def pending() -> str:
    """A task that needs the one GPU of another."""
    Cluster().submit("sleep", "600", target="n1::0")
    return Cluster().submit("true", target="n1::0").id


@pytest.mark.parametrize("words", [["logs", "-f"], ["wait"]])
def test_who_waits_for_a_pending_task_is_told_and_leaves_it_in_the_queue(client, words):
    task = pending()
    with at_terminal([*AGENTLESS, *words, task], os.environ) as keyboard:
        keyboard.sees(f"task {task}".encode())
        keyboard.type(b"\x03")
        keyboard.sees(b"The task stays in the queue. See when it starts: agentless explain ")
        assert keyboard.ended() == 130


def test_ctrl_c_leaves_a_running_task(tasks):
    with at_terminal([*AGENTLESS, "logs", "-f", "train"], os.environ) as keyboard:
        keyboard.sees(b"hello")
        keyboard.type(b"\x03")
        keyboard.sees(b"The task keeps running. Follow it: agentless logs -f train")
        keyboard.sees(b"To stop: agentless stop train")
        assert keyboard.ended() == 130
    assert tasks[0] in live()


def test_a_submit_says_what_it_got_and_what_to_type_next(client):
    for target, words in (
        ("n1", b", no GPU"),
        ("n1::0", b", GPU 0"),
        ("n1::0", b"See when it starts: agentless explain "),
    ):
        with at_terminal([*AGENTLESS, "submit", target, "--", "sleep", "600"], os.environ) as keyboard:
            keyboard.sees(words)
            assert keyboard.ended() == 0


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")
def test_a_watched_list_shows_what_comes_and_goes(tasks, tmp_path: Path):
    with Tmux(tmp_path, {}) as tmux:
        tmux.agentless("ps", "--watch", "--mine")
        tmux.see("STATE", "train")
        assert tasks[1] not in tmux.text
        another = Cluster().submit("sleep", "600", target="n1", name="another")
        tmux.see("another")
        for task in (tasks[0], another.id):
            Cluster().task(task).kill()
        tmux.see("no live tasks")
        tmux.press("C-c")
        tmux.see("ready$")
        assert "no live tasks" not in tmux.text


def test_a_list_is_watched_on_a_terminal_only(tasks):
    assert "--watch needs a terminal" in type_("ps", "--watch", code=2).stderr


def test_ended_tasks_are_listed_by_their_state(client):
    failed = Cluster().submit("sh", "-c", "exit 3", target="n1")
    Cluster().submit("true", target="n1").wait()
    failed.wait()
    assert type_("ps", "--state", "failed", "-q").stdout.split() == [failed.id]
    assert type_("ps", "--state", "failed,completed", "-q").stdout.count("\n") == 2
    assert "no such state; use one of blocked, scheduled, pending" in type_("ps", "--state", "dead", code=2).stderr


def test_it_is_certain_what_is_removed_before_the_question(tasks):
    with at_terminal([*AGENTLESS, "rm", "train", "pod"], os.environ) as keyboard:
        keyboard.sees(b"no task 'pod'")
        assert keyboard.ended() == 2
        assert b"[y/N]" not in keyboard.output


def test_a_word_too_many_is_named(client):
    assert "unexpected argument 'node1'; see agentless show --help" in type_("show", "a", "node1", code=2).stderr
