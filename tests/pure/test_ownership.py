"""A controller whose state folder is another one's by now ends; nothing else makes it end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentless.controller.ownership import Ownership
from agentless.controller.state.task_stores import TaskStores
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "lock").touch()
    return folder


@pytest.fixture
def ends(folder: Path) -> tuple[list[int], Ownership]:
    codes: list[int] = []
    return codes, Ownership(folder / "lock", codes.append)


def test_it_stays_while_the_lock_is_its_own(folder, ends):
    codes, ownership = ends
    (folder / "lock").write_text("x")
    ownership.check()
    assert codes == []


@pytest.mark.parametrize("again", [False, True])
def test_it_ends_when_the_folder_was_removed_or_is_another_one(folder, ends, again, caplog):
    codes, ownership = ends
    folder.rename(folder.with_name("old"))
    if again:
        folder.mkdir()
        (folder / "lock").touch()
    ownership.check()
    assert codes == [1]
    assert "was removed or replaced" in caplog.text


def test_a_folder_that_cannot_be_looked_at_is_no_proof(ends, monkeypatch):
    codes, ownership = ends

    def fails(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "stat", fails)
    ownership.check()
    assert codes == []


def test_nothing_is_written_into_another_ones_folder(folder):
    class EndedError(BaseException):
        pass

    def end(_):
        raise EndedError

    ownership = Ownership(folder / "lock", end)
    store, history = TaskStore(folder / "state.json"), History(folder / "history.sqlite")
    stores = TaskStores(store, history, SecretStore(folder / "secrets"), ownership)
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    with pytest.raises(EndedError), stores.writing("state"):
        store.save()
    assert list(folder.iterdir()) == []
    history.close()
