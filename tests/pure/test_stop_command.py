"""`agentless stop`: what it waits for, in words, when that takes longer."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from agentless.cli.app import run
from agentless.cli.tasks import change
from agentless.client.client import Client
from agentless.errors import NotFound

ON_ITS_WAY = {"id": "2abc", "node": "hpc", "container": None, "state": "assigning"}


class Controller(Client):
    """Knows a cluster and a task on its way there; a stop is answered once somebody has asked for the task."""

    def __init__(self) -> None:
        self._asked = Event()

    def get(self, path: str, **_: object) -> Any:
        if path == "/v1/tasks/2abc":
            self._asked.set()
            return ON_ITS_WAY
        if path == "/v1/clusters":
            return [{"name": "hpc"}]
        raise NotFound(path)

    def post(self, *_: object, **__: object) -> Any:
        self._asked.wait(5)
        return {**ON_ITS_WAY, "state": "stopped", "exit_code": None}


def test_a_stop_of_a_task_on_its_way_to_a_cluster_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(change, "client", lambda _: Controller())
    monkeypatch.setattr(change, "PATIENCE", 0.0)
    assert run(["stop", "2abc"]) == 0
    assert capsys.readouterr() == ("2abc  stopped\n", "Stopping task 2abc on its way to hpc\n")
