"""The dashboard with 800 GPUs that change every second and 5,000 tasks: what it costs, and how fast a key is answered.

The controller is a stand-in that streams made-up rows: its own cost, and that of 100 nodes, would drown the numbers.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import socket
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agentless import __version__
from tests.bench.measure import Row

NODES, GPUS, TASKS = 100, 8, 5000
WARM, SECONDS, KEYS = 4.0, 15.0, 60
SIZES = ((80, 24), (160, 50))
VIEWS = {"overview": b"1", "gpus": b"2", "tasks": b"4"}
"""With the keys that show them."""


def rows(rng: random.Random) -> dict[str, Any]:
    """All rows, as `GET /v1/watch` has them."""
    from agentless.model.view import ControllerView, GpuView, NodeView, TaskView

    def of(view: type, **values: object) -> dict[str, Any]:  # every field, those that are not named as nothing
        return {field.name: values.get(field.name) for field in fields(view)}

    tasks, gpus = [], []
    held = iter(range(NODES * GPUS))
    for at in range(TASKS):
        live = at < NODES * GPUS - 100
        gpu = next(held) if live else 0
        state = "running" if live else ("pending" if at < 2000 else "completed")
        tasks.append(of(
            TaskView, id=f"t{at:010}", state=state, name=f"run-{at}", node=f"node{gpu // GPUS}" if live else None,
            gpus=[gpu % GPUS] if live else [], gpu_uuids=[f"GPU-{gpu}"] if live else [], image="python:3.12",
            command=["python", "train.py", "--seed", str(at)], env_names=[], batch=f"t{at // 10:010}", parameters={},
            owner=f"user{at % 20}@lab", created_at="2026-01-01T00:00:00Z", target="1x", labels={}, mine=at % 20 == 0,
            started_at="2026-01-01T00:00:00Z" if state != "pending" else None, intruders=[], priority=0, retries=0,
            ended_at="2026-01-01T01:00:00Z" if state == "completed" else None, attempt=1, moved=False, about=False,
            position=at - NODES * GPUS + 101 if state == "pending" else None, reason="needs 1 GPU; 0 are free"
            if state == "pending" else None,
        ))  # fmt: skip
    for at in range(NODES * GPUS):
        task = tasks[at]["id"] if at < NODES * GPUS - 100 else None
        gpus.append(of(
            GpuView, node=f"node{at // GPUS}", index=at % GPUS, number=at % GPUS, kind="gpu", uuid=f"GPU-{at}",
            name="NVIDIA H100 80GB HBM3",
            driver="550", memory_total_mib=81559, memory_used_mib=0, utilization_pct=0, temperature_c=30, power_w=70.0,
            power_limit_w=700.0, state="allocated" if task else "free", task=task, owner="user@lab" if task else None,
            reason=f"held by task {task}" if task else "", processes=[], intruders=[], tasks=[task] if task else [],
            shares=1,
        ))  # fmt: skip
    nodes = [
        of(NodeView, name=f"node{at}", state="online", reason="", gpus=GPUS, gpus_free=1, cores=128, memory_mib=1 << 20,
           docker="27.1", nvidia_docker=True, driver="550", address=f"10.0.0.{at}", connection="asyncssh", labels={},
           drained=False, tasks=7)
        for at in range(NODES)
    ]  # fmt: skip
    about = of(ControllerView, version=__version__, pid=1, inventory="i", state_dir="s", started_at="", live_tasks=0,
               nodes=NODES, warnings=[])  # fmt: skip
    _change(gpus, rng)
    return {"now": time.time(), "nodes": nodes, "gpus": gpus, "tasks": tasks, "controller": [about]}


def _change(gpus: list[dict[str, Any]], rng: random.Random) -> None:
    for gpu in gpus:
        if gpu["task"]:
            gpu["utilization_pct"] = rng.randint(20, 100)
            gpu["memory_used_mib"] = rng.randint(20_000, 80_000)
            gpu["temperature_c"] = rng.randint(40, 80)
            gpu["power_w"] = float(rng.randint(200, 700))


class StandIn:
    """A controller that only streams rows."""

    def __init__(self, state: Path) -> None:
        self._rng = random.Random(1)
        self._rows = rows(self._rng)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(state / "controller.sock"))
        self._listener.listen(20)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        asked = connection.recv(65536).split()  # nothing: a look whether a controller is there
        if not asked:
            return
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        if asked[1] != b"/v1/watch":
            return
        line = self._rows
        try:
            while True:
                connection.sendall(json.dumps(line).encode() + b"\n")
                time.sleep(1.0)
                _change(self._rows["gpus"], self._rng)
                line = {"now": time.time(), "gpus": self._rows["gpus"]}
        except OSError:
            return


class Screen:
    """A dashboard in a terminal of its own."""

    def __init__(self, home: Path, size: tuple[int, int]) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            environment = os.environ | {
                "XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home), "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
            }  # fmt: skip
            os.execve(sys.executable, [sys.executable, "-m", "agentless", "dashboard"], environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, seconds: float, until: bytes = b"") -> bytes:
        """What is written in so many seconds, or until something is."""
        end, found = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                found += os.read(self._fd, 65536)
                if until and until in found:
                    break
        return found

    def press(self, key: bytes) -> None:
        """Type a key."""
        os.write(self._fd, key)

    def cpu(self) -> float:
        """Seconds of a core so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MB."""
        [kib] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(kib) / 1000

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@dataclass(frozen=True)
class Found:
    """What one view in one size has taken: a share of a core, the milliseconds after keys, the seconds to load."""

    name: str
    share: float
    keys: list[float]
    loaded: float
    memory: float

    @property
    def late(self) -> float:
        """Of a hundred keys, five are answered later."""
        return statistics.quantiles(self.keys, n=20)[-1]


def bench(_runs: int) -> list[Row]:
    """Each view in two sizes, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="agl-") as folder:
        home = Path(folder)
        (home / "agentless").mkdir()
        StandIn(home / "agentless")
        found = [_measure(home, view, size) for size in SIZES for view in VIEWS]
    what = f"the dashboard with {NODES * GPUS} GPUs that change every second and {TASKS:,} tasks"
    memory = max(each.memory for each in found)
    return [
        _row(f"{what}: processor", "≤ 30 % of a core", found, "{.share:.1%}", lambda each: each.share <= 0.3),
        _row(f"{what}: a key to the screen, p95", "≤ 100 ms", found, "{.late:.0f} ms", lambda each: each.late <= 100),
        _row(f"{what}: from its start to all rows", "≤ 1 s", found, "{.loaded:.2f} s", lambda each: each.loaded <= 1),
        Row(f"{what}: memory", "", f"{memory:.0f} MB resident at most", passed=True),
    ]


def _row(what: str, bound: str, found: list[Found], form: str, holds: Callable[[Found], bool]) -> Row:
    return Row(
        what, bound, " · ".join(f"{each.name} **{form.format(each)}**" for each in found), all(map(holds, found))
    )


def _measure(home: Path, view: str, size: tuple[int, int]) -> Found:
    began = time.monotonic()
    screen = Screen(home, size)
    screen.read(10.0, b"%d run" % (NODES * GPUS - 100))
    loaded = time.monotonic() - began
    screen.read(WARM)
    screen.press(VIEWS[view])
    screen.read(1.0)
    before, since = screen.cpu(), time.monotonic()
    screen.read(SECONDS)
    share = (screen.cpu() - before) / (time.monotonic() - since)
    keys = []
    for at in range(KEYS):
        screen.read(0.05)
        began = time.monotonic()
        screen.press(b"j" if at % 20 < 10 else b"k")
        if screen.read(1.0, b"\x1b["):
            keys.append(1000 * (time.monotonic() - began))
        screen.read(0.03)
    memory = screen.memory()
    screen.close()
    return Found(f"{view} {size[0]}x{size[1]}", share, keys, loaded, memory)
