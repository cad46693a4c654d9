"""The live state on disk: no crash tears it, no failure changes it, and old files load for ever.

`data/state/v1.json` was written by the first version; it is never written again.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.errors import StateError
from agentless.model.scheduling.needs import parse_target
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import Mount
from agentless.model.tasks.task import Blocked, Task
from agentless.model.tasks.terms import Terms
from agentless.stores.state import tinydb
from agentless.stores.state.reservations import ReservationStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import STATES, spec, task

SAMPLE = Path(__file__).parent / "data" / "state" / "v1.json"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def saved(file: Path, *tasks: Task) -> TaskStore:
    store = TaskStore(file)
    store.save(*tasks)
    return store


def everything() -> list[Task]:
    """A task in every live state, one with all there is to ask for."""
    full = spec(
        "sh",
        "-c",
        'echo "é 😀\n"',
        name="run-1",
        cores=0.5,
        memory=2**40,
        shm_size=2**30,
        env={"A": "1"},
        secret_env=("TOKEN",),
        mounts=(Mount("/a", "/b", read_only=True),),
        workdir="/w",
        user="1000",
        network="host",
        privileged=True,
        stop_grace=0.5,
        labels={"team": "vision"},
        needs=parse_target("node1:0::0,1"),
    )
    tasks = [task(f"t{n}", "node1:0::0,1", state) for n, state in enumerate(STATES) if state != "ended"]
    return [replace(tasks[0], spec=full, stop="kill"), *tasks[1:]]


def test_what_is_saved_is_there_after_a_restart(file: Path) -> None:
    tasks = everything()
    saved(file, *tasks)
    assert TaskStore(file).load() == {t.id: t for t in tasks}
    assert TaskStore(file).warning is None


def test_a_new_folder_has_no_tasks(file: Path) -> None:
    assert TaskStore(file).load() == {}
    assert TaskStore(file).load() == {}


def test_one_task_of_a_thousand_is_replaced_in_one_write(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {f"t{n}": task(f"t{n}") for n in range(1000)}
    store = saved(file, *tasks.values())
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), real(handle)))
    store.save(replace(tasks["t500"], stop="stop"))
    assert len(synced) == 2  # the file and its folder
    assert TaskStore(file).load() == tasks | {"t500": replace(tasks["t500"], stop="stop")}


def test_a_removed_task_is_gone_and_removing_it_again_is_fine(file: Path) -> None:
    store = saved(file, task("t1"), task("t2"))
    store.remove("t1")
    store.remove("t1")
    store.remove("never there")
    assert list(store.load()) == list(TaskStore(file).load()) == ["t2"]


def test_only_the_user_may_read_it(file: Path) -> None:
    mask = os.umask(0)
    try:
        saved(file, task("t1")).save(task("t2"))
    finally:
        os.umask(mask)
    assert {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {
        "state.json": 0o600,
        "state.json.last": 0o600,
    }


def test_a_truncated_file_is_replaced_by_the_copy_before_it_with_a_warning(file: Path, tmp_path: Path) -> None:
    store = saved(file, task("t1"))
    store.save(task("t2"))
    whole = file.read_bytes()
    for length in range(0, len(whole), 64):
        copy = tmp_path / str(length) / "state.json"
        copy.parent.mkdir()
        copy.write_bytes(whole[:length])
        shutil.copy(f"{file}.last", f"{copy}.last")
        opened = TaskStore(copy)
        assert list(opened.load()) == ["t1"]
        assert opened.warning == f"{copy} is damaged; restored the previous copy, state.json.last"
        assert Path(f"{copy}.torn").read_bytes() == whole[:length]


def test_a_file_of_zeros_as_a_power_cut_leaves_it_is_torn_too(file: Path) -> None:
    saved(file, task("t1")).save(task("t2"))
    file.write_bytes(bytes(file.stat().st_size))
    assert list(TaskStore(file).load()) == ["t1"]


def test_a_missing_file_is_replaced_by_the_copy_before_it_with_a_warning(file: Path) -> None:
    saved(file, task("t1")).save(task("t2"))
    file.unlink()
    opened = TaskStore(file)
    assert list(opened.load()) == ["t1"]
    assert opened.warning == f"{file} is missing; restored the previous copy, state.json.last"


def test_a_warning_is_given_once(file: Path) -> None:
    saved(file, task("t1")).save(task("t2"))
    file.write_bytes(b"{")
    TaskStore(file).save(task("t3"))
    assert TaskStore(file).warning is None
    assert list(TaskStore(file).load()) == ["t1", "t3"]


def refusal(file: Path) -> str:
    with pytest.raises(StateError) as caught:
        TaskStore(file).load()
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_when_both_copies_are_torn_the_user_is_told_what_to_do(file: Path) -> None:
    saved(file, task("t1")).save(task("t2"))
    file.write_bytes(b"{")
    Path(f"{file}.last").write_bytes(b"")
    assert refusal(file) == (
        f"{file} is damaged, and so is the previous copy; move both away, then run: agentless recover "
        "(tasks keep running)"
    )
    assert file.read_bytes() == b"{"


def test_a_file_of_a_newer_version_is_refused_and_left_alone(file: Path) -> None:
    text = '{"meta":{"1":{"version":4}},"tasks":{"t1":{"priority":7}}}'
    file.write_text(text)
    assert refusal(file) == (
        f"{file} is from a newer agentless (state version 4, this one supports 3); "
        "upgrade agentless, or set XDG_STATE_HOME to another folder"
    )
    assert file.read_text() == text


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", "7", '{"meta":{"1":{"version":"1"}}}', '{"meta":{"1":{"version":0}}}']
)
def test_a_file_of_something_else_is_refused_and_left_alone(file: Path, text: str) -> None:
    file.write_text(text)
    assert refusal(file) == f"{file} is not a state file of agentless; move it away and restart"
    assert file.read_text() == text


def test_a_damaged_task_is_refused_with_the_file_and_what_to_do(file: Path) -> None:
    saved(file, task("t1"))
    document = json.loads(file.read_text())
    document["tasks"]["t1"]["status"] = {"state": "flying"}
    file.write_text(json.dumps(document))
    assert f"{file} contains a damaged task" in refusal(file)
    assert "move the file away, then run: agentless recover" in refusal(file)


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: Not a directory" in refusal(tmp_path / "file" / "state.json")
    (tmp_path / "state.json").mkdir()
    assert ": Is a directory" in refusal(tmp_path / "state.json")
    assert "nowhere: No such file or directory" in refusal(tmp_path / "nowhere" / "state.json")


def test_a_read_only_file_system_is_refused_with_the_way_out() -> None:
    """/proc takes no files, not even from root."""
    assert str(refusal(Path("/proc/state.json"))).startswith("cannot use the state in /proc: ")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full; free some space there"),
        (errno.EDQUOT, "your disk quota is used up"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_write_that_fails_changes_neither_the_file_nor_the_memory(
    file: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    store = saved(file, task("t1"))
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for change in (lambda: store.save(task("t2")), lambda: store.remove("t1")):
            with pytest.raises(StateError, match=words):
                change()
    assert file.read_bytes() == before
    assert list(store.load()) == ["t1"]
    assert list(TaskStore(file).load()) == ["t1"]
    store.save(task("t2"))
    assert list(TaskStore(file).load()) == ["t1", "t2"]


def test_a_file_that_may_not_grow_stays_as_it_was(file: Path) -> None:
    store = saved(file, task("t1"))
    before, limits = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(StateError, match="File too large"):
            store.save(*(task(f"t{n}") for n in range(100)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == before
    assert list(store.load()) == ["t1"]


def test_the_first_versions_file_loads_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    shutil.copy(SAMPLE, file)
    assert list(TaskStore(file).load().values()) == [
        task for task in everything() if task.state not in ("scheduled", "blocked", "submitted")
    ]
    assert TaskStore(file).warning is None


def test_an_older_version_is_brought_up_step_by_step(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(SAMPLE, file)
    monkeypatch.setattr(tinydb, "VERSION", 3)
    steps: list[int] = []

    def step(version: int) -> Any:
        def upgrade(tables: dict[str, Any]) -> dict[str, Any]:
            steps.append(version)
            return tables | {"meta": {"1": {"version": version + 1}}}

        return upgrade

    monkeypatch.setattr(tinydb, "UPGRADES", {1: step(1), 2: step(2)})
    store = TaskStore(file)
    assert steps == [1, 2]
    store.save(task("new"))
    assert json.loads(file.read_text())["meta"]["1"]["version"] == 3


def version(file: Path) -> int:
    return json.loads(file.read_text())["meta"]["1"]["version"]


@pytest.mark.parametrize(
    ("state", "needs"),
    [("pending", "node1::1/0"), ("running", "1x:10G"), ("lost", "1x:10G"), ("running", "node1::1/0")],
)
def test_a_slice_raises_the_version_so_that_a_controller_without_slices_says_that_it_is_too_old(
    file: Path, state: str, needs: str
) -> None:
    store = saved(file, task("t1", "node1::0"))
    assert version(file) == 2  # of an agentless without slices, which can read it
    held = task("t2", "node1::1/0", state, spec=spec(needs=parse_target(needs)))
    store.save(held)
    assert version(file) == 3
    store.remove("t2")
    assert version(file) == 3  # it may be in the history now
    store.save(held)
    assert TaskStore(file).load() == {"t1": task("t1", "node1::0"), "t2": held}


@pytest.mark.parametrize(
    "new",
    [
        replace(task("t2"), status=Blocked((Requirement("t1"),))),
        task("t2", spec=spec(terms=Terms(requires=(Requirement("t1"),)))),
        task("t2", spec=spec(gang=Gang(2))),
        task("t2", spec=spec(job=Job("train", "flow"))),
    ],
    ids=["blocked", "requires", "gang", "job"],
)
def test_a_task_that_depends_on_others_raises_the_version_too(file: Path, new: Task) -> None:
    store = saved(file, task("t1"))
    assert version(file) == 2
    store.save(new)
    assert version(file) == 3
    assert TaskStore(file).load()["t2"] == new


def test_a_reservation_of_a_slice_raises_the_version_too(file: Path) -> None:
    reservations = ReservationStore(saved(file, task("t1")))
    reservations.save([Reservation("r1", "node1", (0,), "ann", 0.0, 9.0)])
    assert version(file) == 2
    ours = Reservation("r2", "node1", ("0/1",), "ann", 0.0, 9.0)
    reservations.save([ours])
    assert version(file) == 3
    assert ReservationStore(TaskStore(file)).load()["r2"] == ours
