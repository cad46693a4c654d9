"""How often the state file is written in the life of a task."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

from agentless import paths
from agentless.client.client import Client
from tests.bench.fleets import controller, forget, request, simulated_env, simulated_nodes
from tests.bench.measure import Row

MOST = 6
_IN_MOVED_TO, _IN_NONBLOCK = 0x80, 0o4000  # inotify(7)
_HEAD = struct.Struct("iIII")


def bench(_runs: int) -> list[Row]:
    """Each write is a new file that takes the place of the old one, which the kernel tells."""
    rows = []
    with simulated_nodes(1, 2) as root, controller(env := simulated_env(root)) as client:
        written = _watch(paths.state_dir(env))
        for what, live in (("ends by itself", _ends), ("is stopped", _stopped)):
            live(client)
            count = written().count(b"state.json")
            rows.append(Row(f"state writes of a task that {what}", f"≤ {MOST}", f"**{count}**", 0 < count <= MOST))
    return rows


def _ends(client: Client) -> None:
    [start] = client.post("/v1/tasks", request("node1::0", "true"))
    forget(client, start["task"]["id"])


def _stopped(client: Client) -> None:
    [start] = client.post("/v1/tasks", request("node1::0", "sleep", "3600"))
    client.post(f"/v1/tasks/{start['task']['id']}/stop", {"grace": 0})
    forget(client, start["task"]["id"])


def _watch(folder: Path) -> Callable[[], list[bytes]]:
    """Gives the names of the files that have come into the folder by a rename since the last call."""
    libc = ctypes.CDLL(None, use_errno=True)
    notices = libc.inotify_init1(_IN_NONBLOCK)
    assert libc.inotify_add_watch(notices, os.fsencode(folder), _IN_MOVED_TO) >= 0

    def names() -> list[bytes]:
        found = []
        try:
            data = os.read(notices, 1 << 20)
        except BlockingIOError:
            return []
        while data:
            length = _HEAD.unpack_from(data)[3]
            found.append(data[_HEAD.size : _HEAD.size + length].rstrip(b"\0"))
            data = data[_HEAD.size + length :]
        return found

    return names
