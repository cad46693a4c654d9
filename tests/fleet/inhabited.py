"""Simulated nodes and the environment of somebody who uses them, for code that starts a controller by itself."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless import paths
from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from agentless.model.tasks.task_id import first_try
from tests.fleet.client import PATIENCE
from tests.fleet.world import World


@contextlib.contextmanager
def inhabited(root: Path, plans: list[NodePlan]) -> Iterator[World]:
    """The environment variables name the inventory of the nodes; the controller that is left at the end is ended."""
    with pytest.MonkeyPatch.context() as patch, World(root / "fleet", plans, {}) as world:
        config = root / "config" / "agentless"
        config.mkdir(parents=True)
        (config / "known_hosts").write_bytes(world.fleet.known_hosts.read_bytes())
        patch.setenv("XDG_CONFIG_HOME", str(root / "config"))
        patch.setenv("XDG_STATE_HOME", str(root / "state"))
        patch.setenv("AGENTLESS_INVENTORY", str(world.fleet.inventory))
        try:
            yield world
        finally:
            end_controller(signal.SIGTERM)


def forget_tasks(client: Client) -> None:
    """Kill what lives, and remove all tasks with all their tries."""
    for task in client.get("/v1/tasks"):
        client.post(f"/v1/tasks/{task['id']}/kill")
        client.wait(task["id"])
    ended = sorted({first_try(task["id"]) for task in client.get("/v1/tasks", ended=True)})
    assert not [each for each in client.post("/v1/tasks/remove", {"tasks": ended}) if each["message"]]


def end_controller(number: int) -> None:
    """Send a signal to the controller, if one runs, and wait for its end."""
    client = Client(paths.state_dir(), None)
    if not client.is_running():
        return
    pidfd = os.pidfd_open(pid := client.get("/v1/controller")["pid"])
    try:
        os.kill(pid, number)
        assert select.select([pidfd], [], [], PATIENCE)[0], "the controller does not end"
    finally:
        os.close(pidfd)
