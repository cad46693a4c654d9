"""Several tasks in one write of the state: all of them or none, and each as if it were alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentless.controller.state.group_commit import GroupCommit
from agentless.controller.state.ledger import Ledger
from agentless.errors import IllegalMove, StateError
from agentless.model.tasks.task_event import Assigned, Dated, Exited, Launched, Queued, Restarted, TaskEvent, Unplaced
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import CID, NOW, placement, task
from tests.pure.test_ledger import event_names, full, opened


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(tmp_path)


def on_disk(ledger: Ledger) -> dict[str, str]:
    return {key: each.state for key, each in TaskStore(ledger.stores.state._path).load().items()}


def writes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The tasks of each write from now on."""
    counted: list[set[str]] = []
    save = ledger.stores.state.save

    def counting(*tasks: object, **more: object) -> None:
        counted.append({each.id for each in tasks})  # type: ignore[attr-defined]
        save(*tasks, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger.stores.state, "save", counting)
    return counted


def queued(ledger: Ledger, *ids: str) -> None:
    ledger.add_all([(task(key, state="pending"), Queued()) for key in ids], "submitted")


def test_tasks_that_come_together_are_one_write(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = writes(ledger, monkeypatch)
    queued(ledger, "t1", "t2")
    ledger.apply_all({key: (Assigned(placement()), "its turn") for key in ("t1", "t2")})
    assert counted == [{"t1", "t2"}, {"t1", "t2"}]
    assert on_disk(ledger) == {"t1": "assigning", "t2": "assigning"}
    assert event_names(ledger, "t2") == [("queued", "pending"), ("assigned", "assigning")]


def test_of_tasks_that_come_together_none_is_kept_when_the_write_fails(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(ledger, "t1", "t2")
    with monkeypatch.context() as patch:
        patch.setattr(ledger.stores.state, "save", full)
        with pytest.raises(StateError):
            ledger.apply_all({key: (Assigned(placement()), "its turn") for key in ("t1", "t2")})
    assert {key: each.state for key, each in ledger.tasks.live.items()} == {"t1": "pending", "t2": "pending"}
    assert event_names(ledger, "t1") == [("queued", "pending")]


def test_an_engines_date_is_written_with_the_next_task(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.adopt(task("t1"), "found")
    counted = writes(ledger, monkeypatch)
    ledger.apply("t1", Dated(NOW - 5, NOW - 5), "seen")
    assert counted == []
    queued(ledger, "t2")
    assert counted == [{"t1", "t2"}]


def test_an_ended_task_leaves_the_state_file_with_the_next_write(ledger: Ledger) -> None:
    ledger.adopt(task("t1"), "found")
    ledger.apply("t1", Exited(0), "seen")
    queued(ledger, "t2")
    assert on_disk(ledger) == {"t2": "pending"}


def test_an_ended_task_leaves_the_state_file_although_nothing_else_is_written(ledger: Ledger) -> None:
    ledger.adopt(task("t1"), "found")
    ledger.apply("t1", Exited(0), "seen")
    ledger.flush()
    assert on_disk(ledger) == {}


def test_an_ended_task_that_lives_again_stays_in_the_state_file(ledger: Ledger) -> None:
    ledger.adopt(task("t1"), "found")
    ended = ledger.apply("t1", Exited(0), "seen")
    ledger.revive(ended, Restarted(NOW, NOW), "by hand")
    ledger.flush()
    assert on_disk(ledger) == {"t1": "running"}


def test_answers_that_come_together_are_two_writes_at_most(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one does not wait for the others, and the others share one."""
    ids = [f"t{number}" for number in range(50)]
    queued(ledger, *ids)
    ledger.apply_all({key: (Assigned(placement()), "its turn") for key in ids})
    counted = writes(ledger, monkeypatch)

    async def answer() -> None:
        commits, launched = GroupCommit(ledger), Launched(CID)
        await asyncio.gather(*(commits.apply(key, launched, "docker run answered") for key in ids))

    asyncio.run(answer())
    assert set.union(*counted) == set(ids)
    assert len(counted) <= 2
    assert set(on_disk(ledger).values()) == {"running"}


def test_each_of_those_that_come_together_hears_that_the_disk_is_full(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(ledger, "t1", "t2")
    ledger.apply_all({key: (Assigned(placement()), "its turn") for key in ("t1", "t2")})
    monkeypatch.setattr(ledger.stores.state, "save", full)

    async def answer() -> list[BaseException | None]:
        commits, launched = GroupCommit(ledger), Launched(CID)
        waits = (commits.apply(key, launched, "docker run answered") for key in ("t1", "t2"))
        return await asyncio.gather(*waits, return_exceptions=True)

    assert [type(error) for error in asyncio.run(answer())] == [StateError, StateError]


def test_who_is_gone_does_not_hold_up_the_others(ledger: Ledger) -> None:
    queued(ledger, "t1")
    ledger.apply("t1", Assigned(placement()), "its turn")
    event: TaskEvent = Launched(CID)

    async def answer() -> None:
        commits = GroupCommit(ledger)
        await asyncio.gather(commits.apply("gone", event, "a"), commits.apply("t1", event, "b"))

    asyncio.run(answer())
    assert on_disk(ledger) == {"t1": "running"}


def test_one_that_cannot_be_is_told_so_and_does_not_hold_up_the_others(ledger: Ledger) -> None:
    queued(ledger, "t1", "t2")
    ledger.apply("t1", Assigned(placement()), "its turn")
    event: TaskEvent = Launched(CID)

    async def answer() -> list[BaseException | None]:
        commits = GroupCommit(ledger)
        waits = (commits.apply(key, event, "docker run answered") for key in ("t1", "t2"))
        return await asyncio.gather(*waits, return_exceptions=True)

    first, second = asyncio.run(answer())
    assert (first, type(second)) == (None, IllegalMove)
    assert on_disk(ledger) == {"t1": "running", "t2": "pending"}


def test_the_tasks_of_a_node_are_those_that_are_there_now(ledger: Ledger) -> None:
    queued(ledger, "t1", "t2", "t3")
    ledger.apply_all({key: (Assigned(placement()), "its turn") for key in ("t1", "t2")})
    ledger.apply("t1", Unplaced("taken"), "the node refused it")
    ledger.apply("t1", Assigned(placement("elsewhere")), "its turn")
    ledger.forget(ledger.tasks.live["t2"], "removed", "rm")
    node = placement().node
    assert ([each.id for each in ledger.tasks.on_node("elsewhere")], ledger.tasks.on_node(node)) == (["t1"], [])


def test_the_live_tasks_of_a_batch_are_found_without_the_others(ledger: Ledger) -> None:
    queued(ledger, "t1", "t2", "t3")
    batches = {each.id: each.batch for each in ledger.tasks.live.values()}
    ledger.forget(ledger.tasks.live["t2"], "removed", "rm")
    for batch in set(batches.values()):
        expected = [key for key in ("t1", "t3") if batches[key] == batch]
        assert [each.id for each in ledger.tasks.in_batch(batch)] == expected
    assert ledger.tasks.in_batch("other") == []
