"""The state folder is its owner's alone, whatever the umask of the shell in which the controller was started."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentless import errors, paths
from agentless.client.client import Client
from agentless.demo.engine.engine import DEFAULT_IMAGE
from agentless.demo.fleet import NodePlan
from tests.fleet.inhabited import end_controller, inhabited
from tests.real.cli import until

root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


@pytest.fixture(params=[0o000, *(pytest.param(each, marks=pytest.mark.slow) for each in (0o022, 0o077))], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def controller_state(tmp_path):
    with inhabited(tmp_path, [NodePlan("n1", 1)]):
        yield


def used() -> Path:
    """The folder after a task with a secret, whose log is kept, while another one runs and a third one waits."""
    client = Client.found(None)
    for script in ("echo done", "sleep 600", "sleep 601"):
        spec = {"command": ["sh", "-c", script], "image": DEFAULT_IMAGE, "secret_env": ["TOKEN"]}
        asked = {"targets": ["n1::0"], "spec": spec, "secrets": {"TOKEN": "x"}}
        (start,) = client.post("/v1/tasks", asked)
        assert start["task"], start
        if script == "echo done":
            client.wait(start["task"]["id"])
    client.get("/v1/history", since=60, points=5)
    folder = paths.state_dir()
    until(lambda: list((folder / "logs").iterdir()) and list((folder / "secrets").iterdir()))
    until(lambda: {"state.json.last", "samples.sqlite", "samples.sqlite-wal"} <= set(os.listdir(folder)))
    return folder


def modes(folder: Path) -> dict[str, str]:
    """Of all that is in it, itself included, what others than its owner would have, or its owner lacks."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600):
            found[str(path.relative_to(folder))] = oct(stat.S_IMODE(mode))
    return found


def test_all_files_of_a_session_are_0600(controller_state, umask):
    folder = used()
    assert modes(folder) == {}
    end_controller(15)
    assert modes(folder) == {}


@pytest.mark.slow
def test_what_an_earlier_version_left_open_is_closed_at_the_start(controller_state):
    folder = used()
    end_controller(15)
    outside = folder.parent / "mine"
    outside.write_text("")
    outside.chmod(0o644)
    (folder / "link").symlink_to(outside)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    Client.found(None).get("/v1/nodes")
    (folder / "link").unlink()
    assert modes(folder) == {}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_a_folder_that_others_may_write_to_is_closed_by_the_next_command(controller_state):
    """Also where the folder is a link, and while its controller runs."""
    folder = paths.state_dir()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    for _ in ("it starts a controller", "it finds one"):
        elsewhere.chmod(0o777)
        Client.found(None).get("/v1/nodes")
        assert modes(elsewhere) == {}


@root
@pytest.mark.parametrize("whose", ["folder", "link", "socket", "state.json"])
def test_what_somebody_else_has_put_there_is_refused(controller_state, whose):
    folder = paths.state_dir()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700, parents=True)
    folder.symlink_to(elsewhere)
    theirs = {"folder": elsewhere, "link": folder}.get(whose, elsewhere / whose.replace("socket", "controller.sock"))
    if theirs.parent == elsewhere:
        theirs.touch()
    os.chown(theirs, 65534, 65534, follow_symlinks=False)
    with pytest.raises(errors.AgentlessError, match=f"/{theirs.name} belongs to user 65534, not to you"):
        Client.found(None).get("/v1/nodes")
    assert not (elsewhere / "key").exists()
    os.chown(theirs, 0, 0, follow_symlinks=False)
