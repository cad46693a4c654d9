"""The ledger over real stores: what is on disk, and what is told, when things go wrong in between."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from agentless.controller.ownership import Ownership
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.errors import Refused, StateError
from agentless.model.tasks.task_event import Assigned, Exited, Froze, Launched, Queued, Restarted, StopAsked
from agentless.rules.scheduling.plan import Outlook
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import CID, NOW, placement, process, task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


_open: list[History] = []


def opened(folder: Path) -> Ledger:
    """As after a restart: what was open before is not open any more."""
    while _open:
        _open.pop().close()
    store, history = TaskStore(folder / "state.json"), History(folder / "history.sqlite")
    _open.append(history)
    clock: Any = SimpleNamespace(now=lambda: NOW)
    tasks, bus = Tasks("me@here", store.controller, history), EventBus()
    nodes: Any = SimpleNamespace(stale=lambda _: None)
    queue: Any = SimpleNamespace(outlook=lambda _: Outlook())
    outputs: Any = SimpleNamespace(view=lambda _: ())
    stores = TaskStores(store, history, SecretStore(folder / "secrets"), Ownership(folder / "lock"))
    return Ledger(tasks, stores, TaskViews(tasks, nodes, queue, outputs, clock), bus, clock)


def full(*_: object, **__: object) -> None:
    raise StateError("the disk is full")


def full_of(what: str) -> None:
    raise StateError(f"{what} is full")


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def event_names(ledger: Ledger, of: str = "t1") -> list[tuple[str, str]]:
    events = [orjson.loads(event) for _, event in ledger.stores.history.events(0, -1, of)]
    return [(event["event"], event["task"]["state"]) for event in events]


def test_a_life_is_told_once_over_restarts(folder: Path) -> None:
    ledger = opened(folder)
    ledger.add(task(state="pending"), Assigned(placement()), "submitted")
    ledger = opened(folder)
    ledger.apply("t1", Launched(CID), "docker run")
    ledger = opened(folder)
    ledger.apply("t1", Exited(0), "seen")
    assert event_names(opened(folder)) == [("assigned", "assigning"), ("launched", "running"), ("exited", "completed")]


def test_what_was_saved_and_not_told_is_told_by_the_next_one(folder: Path) -> None:
    """Killed between the two writes."""
    ledger = opened(folder)
    ledger.add(task(state="pending"), Assigned(placement()), "submitted")
    TaskStore(folder / "state.json").save(task(state="running"))
    assert event_names(opened(folder)) == [("assigned", "assigning"), ("recalled", "running")]


def test_an_end_that_cannot_be_written_has_not_happened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.history, "add", full)
        with pytest.raises(StateError):
            ledger.apply("t1", Exited(0), "seen")
    assert ledger.tasks.live["t1"].state == "running"
    assert event_names(ledger) == [("adopted", "running")]
    ledger.apply("t1", Exited(0), "seen")
    assert event_names(ledger) == [("adopted", "running"), ("exited", "completed")]


def test_what_has_happened_is_told_once_there_is_room_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.history, "record", full)
        ledger.publish(ledger.tasks.live["t1"], "intruded", "bob")
        assert ledger.stores.trouble == "the disk is full"
    assert event_names(ledger) == [("adopted", "running")]
    ledger.apply("t1", Exited(0), "seen")
    assert event_names(ledger) == [("adopted", "running"), ("intruded", "running"), ("exited", "completed")]
    assert ledger.stores.trouble is None


def test_a_stop_that_cannot_be_written_holds_and_is_written_when_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.state, "save", full)
        assert ledger.apply("t1", StopAsked("stop"), "agentless stop").stop == "stop"
        assert ledger.stores.trouble == "the disk is full"
    assert TaskStore(folder / "state.json").load()["t1"].stop is None
    ledger.flush()
    assert TaskStore(folder / "state.json").load()["t1"].stop == "stop"
    ledger.apply("t1", Exited(143), "seen")
    assert event_names(ledger) == [("adopted", "running"), ("stop-asked", "running"), ("exited", "stopped")]


def test_what_waits_and_cannot_be_written_off_is_to_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(folder)
    ledger.add(task(state="pending"), Queued(), "submitted")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.history, "add", full)
        stopped = ledger.apply("t1", StopAsked("stop"), "agentless stop")
    assert (stopped.state, stopped.stop) == ("pending", "stop")
    assert ledger.apply("t1", StopAsked("stop"), "again").state == "cancelled"


def test_a_submit_that_cannot_be_saved_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(folder)

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.state, "save", full)
        with pytest.raises(StateError):
            ledger.add(task(state="pending"), Assigned(placement()), "submitted")
    assert (ledger.tasks.live, event_names(ledger)) == ({}, [])
    assert opened(folder).tasks.live == {}


def test_an_end_is_told_once_although_the_state_file_cannot_forget_it_yet(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.state, "remove", full)
        ledger.apply("t1", Exited(0), "seen")
        ledger.flush()
        assert (ledger.tasks.live, ledger.stores.trouble) == ({}, "the disk is full")
        again = opened(folder)  # it starts on the full disk, too
        assert again.tasks.live == {}
        ledger = again
    ledger.flush()
    assert (ledger.stores.trouble, TaskStore(folder / "state.json").load()) == (None, {})
    assert event_names(ledger) == [("adopted", "running"), ("exited", "completed")]


def test_a_task_that_is_removed_is_never_gone_without_a_word(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed where the events are recorded: what is gone by then has been told."""
    ledger = opened(folder)
    ledger.adopt(task(), "found")
    ended = ledger.apply("t1", Exited(0), "seen")

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(History, "record", killed)
        ledger.forget(ended, "removed", "agentless rm")
    ledger = opened(folder)
    assert not ledger.stores.history.has("t1")
    assert event_names(ledger)[-1] == ("removed", "completed")


def test_trouble_is_over_when_there_is_room_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(folder)

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.history, "record", full)
        ledger.note("left", "a test")
    assert ledger.stores.trouble == "the disk is full"
    ledger.flush()
    assert (ledger.stores.trouble, len(ledger.stores.history.events(0, -1))) == (None, 1)


def test_a_state_file_in_trouble_is_said_until_the_state_file_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.state, "save", full)
        with pytest.raises(StateError):
            ledger.apply("t1", Froze(), "seen")
        ledger.note("left", "which goes into the history")
        ledger.flush()
        assert ledger.stores.trouble == "the disk is full"
    ledger.flush()
    assert ledger.stores.trouble is None


def test_a_history_in_trouble_is_said_until_the_history_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        for write in ("add", "touch"):
            patch.setattr(ledger.stores.history, write, full)
        with pytest.raises(StateError):
            ledger.apply("t1", Exited(0), "seen")
        ledger.stores.state.save()
        ledger.flush()
        assert ledger.stores.trouble == "the disk is full"
    ledger.flush()
    assert ledger.stores.trouble is None


def test_of_two_stores_in_trouble_each_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")

    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.state, "save", lambda *_, **__: full_of("the state"))
        patch.setattr(ledger.stores.history, "record", lambda *_: full_of("the history"))
        with pytest.raises(StateError):
            ledger.apply("t1", Froze(), "seen")
        ledger.note("left", "a test")
    assert sorted(str(ledger.stores.trouble).split("; ")) == ["the history is full", "the state is full"]


def test_who_uses_the_gpus_of_a_task_is_forgotten_when_it_ends(folder: Path) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")
    ledger.tasks.intruders["t1"] = (process("node1", 0),)
    ledger.apply("t1", Exited(0), "seen")
    assert ledger._views.view(ledger.stores.history.newest(1)[0]).intruders == ()


@pytest.mark.parametrize("end", [[], [Exited(0)]])
def test_an_id_that_is_known_is_never_taken_in_again(folder: Path, end: list[Any]) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")
    for event in end:
        ledger.apply("t1", event, "seen")
    known, before = dict(ledger.tasks.live), event_names(ledger)
    for _ in range(2):  # the second time after a restart
        with pytest.raises(Refused, match="task t1 already exists"):
            ledger.add(task(state="pending"), Assigned(placement()), "submitted")
        assert (ledger.tasks.live, event_names(ledger)) == (known, before)
        ledger = opened(folder)


def test_what_had_ended_lives_again_as_itself(folder: Path) -> None:
    ledger = opened(folder)
    ledger.adopt(task(), "found")
    ledger.apply("t1", Exited(0), "seen")
    ledger.revive(ledger.stores.history.newest(1)[0], Restarted(NOW, NOW), "docker start")
    assert (ledger.tasks.live["t1"].state, ledger.stores.history.has("t1")) == ("running", False)
    assert list(opened(folder).tasks.live) == ["t1"]
