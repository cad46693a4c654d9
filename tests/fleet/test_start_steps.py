"""The steps of a start at a terminal."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentless.cli.submit.steps import showing
from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.client import PATIENCE
from tests.fleet.inhabited import inhabited


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with inhabited(tmp_path_factory.mktemp("fleet"), [NodePlan("n1", 1)]) as world:
        yield world


class Late(Client):
    """Its stream of events opens when the start is over."""

    over = threading.Event()

    def events(self, **query: Any) -> Iterator[Any]:
        self.over.wait(PATIENCE)
        return super().events(**query)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_that_came_before_anybody_listened_is_shown(world, monkeypatch):
    client = Late.found(None)
    client.get("/v1/nodes")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    spec = {"command": ["true"], "name": "late", "image": "nobody/nothing", "pull": "always"}
    with showing(client, lambda event: event["task"]["name"] == "late", time.time(), "Starting"):
        client.submit({"spec": spec, "targets": ["n1"]})
        client.over.set()
        end = time.monotonic() + PATIENCE
        while "pulling nobody/nothing" not in terminal.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert "pulling nobody/nothing" in terminal.getvalue()
