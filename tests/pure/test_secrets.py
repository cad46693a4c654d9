"""Secret values that wait for a start: in one 0600 file each, and nowhere else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from agentless.errors import StateError
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import spec, task

VALUE = "k3y-of-the-kingdom é\n\"'"


def test_values_survive_a_restart_until_they_are_removed(tmp_path: Path) -> None:
    SecretStore(tmp_path / "secrets").put("t1", {"TOKEN": VALUE, "EMPTY": ""})
    store = SecretStore(tmp_path / "secrets")
    assert store.get("t1") == {"TOKEN": VALUE, "EMPTY": ""}
    assert store.tasks() == ["t1"]
    store.remove("t1")
    store.remove("t1")
    assert store.get("t1") == {}
    assert store.tasks() == []
    assert list((tmp_path / "secrets").iterdir()) == []


def test_only_the_user_may_enter_and_read(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        SecretStore(tmp_path / "secrets").put("t1", {"TOKEN": VALUE})
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "secrets" / "t1").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../state.json", "/etc/hostname", ".", "", "x" * 300])
def test_a_name_that_is_no_id_leads_out_of_the_folder_for_nobody(tmp_path: Path, name: str) -> None:
    """Ids come from labels, too, and those may be anybody's words."""
    (tmp_path / "state.json").write_text("{}")
    store = SecretStore(tmp_path / "secrets")
    assert store.get(name) == {}
    store.remove(name)
    assert (tmp_path / "state.json").read_text() == "{}"


def test_a_task_without_secrets_leaves_no_file(tmp_path: Path) -> None:
    store = SecretStore(tmp_path / "secrets")
    store.put("t1", {})
    assert (store.tasks(), store.get("t1")) == ([], {})


def test_values_are_in_no_other_file_of_the_state_folder(tmp_path: Path) -> None:
    with_secret = task("t1", spec=spec(secret_env=("TOKEN",)))
    SecretStore(tmp_path / "secrets").put("t1", {"TOKEN": "k3y-of-the-kingdom"})
    TaskStore(tmp_path / "state.json").save(with_secret)
    history = History(tmp_path / "history.sqlite")
    history.add(with_secret)
    history.close()
    holding = [path.name for path in tmp_path.rglob("*") if path.is_file() and b"k3y-of" in path.read_bytes()]
    assert holding == ["t1"]


def test_a_full_disk_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SecretStore(tmp_path / "secrets")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space left on device") as caught:
        store.put("t1", {"TOKEN": VALUE})
    assert VALUE not in str(caught.value)
    assert store.tasks() == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot create the folder .*: Not a directory"):
        SecretStore(tmp_path / "file" / "secrets")
