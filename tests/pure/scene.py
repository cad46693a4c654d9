"""A cluster of any size on which everything stands still: the one that was recorded, and copies of its nodes.

Its client answers whatever a view asks, always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from agentless.client.client import Client
from agentless.errors import ControllerError
from agentless.formats.frames import Frame

BOARD = json.loads((Path(__file__).parent / "data" / "dashboard" / "board.json").read_text())
NOW = BOARD["line"]["now"]
NODES = {node["name"]: node for node in BOARD["line"]["nodes"]}
TASKS = {task["name"] or task["id"]: task for task in BOARD["line"]["tasks"]}
RUNS, WAITS = TASKS["pretrain-a"], TASKS["big"]
LOADS = (
    "cores_busy", "memory_used_mib", "load_1m", "disk_used_mib", "temperature_c", "network_in_bytes_per_second",
    "network_out_bytes_per_second",
)  # fmt: skip
OWNERS = ("ann@laptop", "alice", "bob@pc", "carol@lab")
LOG = [(1 + (at % 7 == 6), b"epoch %d: loss %.3f\n" % (at, 3 / (at + 1))) for at in range(80)]
VERSION = {"message": "torch 2.5", "by": "ann@laptop", "at": "2026-11-20T00:00:00Z", "nodes": ["node1", "node2"]}

Row = dict[str, Any]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


ANSWERS: dict[str, Any] = {
    "/events": [
        {"at": NOW - 4000, "event": "assigned", "task": RUNS, "cause": "first that fits"},
        {"at": NOW - 3998, "event": "launched", "task": RUNS, "cause": "docker run"},
    ],
    "/spec": {
        "mounts": [{"source": "/data/images", "target": "/data", "read_only": True}],
        "volumes": [{"name": "checkpoints", "target": "/ckpt"}],
        "uploads": [{"source": "/home/ann/code", "target": "."}],
    },
    "/script": {"node": "node1", "address": "ann@10.0.0.1", "script": "set -eu\ndocker run \\\n  --gpus device=1 …\n"},
    "/explain": {
        "summary": "Pending: needs 8 GPUs, and no node has as many free",
        "helps": ["--gpus 4, which node1 has free"],
        "obstacles": [],
        "remedies": {},
    },
    "/usage": {
        "gpus": 17, "parts": 4, "more": 2, "total": {"gpu_hours": 321.5, "share": 0.147, "tasks": 41},
        "rows": [
            {"name": name, "gpu_hours": hours, "share": hours / 2184, "tasks": tasks, "utilization_pct": used}
            for name, hours, tasks, used in (("ann@laptop", 212.5, 20, 91.0), ("alice", 88.0, 20, 64.5),
                                             ("bob@pc", 21.0, 1, None))
        ],
        "periods": [{"begins_at": f"2026-11-{at}T00:00:00Z", "gpu_hours": 66.0 + 54 * (at % 4)}
                    for at in range(15, 22)],
        "ends_at": "2026-11-22T00:00:00Z",
    },
    "/reservations": [
        {"node": "node2", "gpus": [0, 1], "owner": "eve", "reason": "paper", "begins_at": _moment(5 * 3600),
         "ends_at": _moment(9 * 3600)},
    ],
    "/envs": [
        {"name": "torch", "node": "node1", "state": "running", "version": 2, "size_bytes": 1, "nodes": [],
         "offline": [], "versions": [{**VERSION, "version": at, "size_bytes": at << 33, "current": at == 2}
                                     for at in (1, 2)]},
    ],
}  # fmt: skip
"""By the end of the path."""


class SceneClient(Client):
    """Answers without a controller."""

    def __init__(self, line: Row) -> None:
        super().__init__(Path("/nowhere"), None)
        self._scene = line

    def get(self, path: str, **query: object) -> Any:
        if path == "/v1/history":
            return history(self._scene, **query)
        if path.startswith("/v1/workflows/"):
            return BOARD["workflow"]
        for end, answer in ANSWERS.items():
            if path.endswith(end):
                return answer
        raise ControllerError(f"no answer to {path}")

    def post(self, path: str, *_: object, **__: object) -> Any:
        if path == "/v1/explain":
            return {"summary": "would start now, on node1::0", "obstacles": [], "remedies": {}}
        raise ControllerError(f"no answer to {path}")

    def frames(self, *_: object, **__: object) -> Iterator[Frame]:
        return iter(LOG)

    def followed(self, *_: object, **__: object) -> Iterator[Frame]:
        return iter(LOG)


@lru_cache(8)
def cluster(nodes: int) -> Row:
    """So many nodes: the three that were recorded, then copies of the first two. The sixth does not answer."""
    recorded = BOARD["line"]
    names = [("node1", "node2", "node3")[at] if at < 3 else f"node{1 + at % 2}" for at in range(nodes)]
    parts = [_node(name, at) for at, name in enumerate(names)]
    live = chain(*(tasks for _, _, tasks in parts))
    ended = [task for task in recorded["tasks"] if task["ended_at"]]
    return {
        **recorded,
        "nodes": [node for node, _, _ in parts],
        "gpus": list(chain(*(gpus for _, gpus, _ in parts))),
        "tasks": [*live, *_waiting(), *(ended if nodes > 2 else [])],
        "workflows": [BOARD["workflow"], *BOARD["workflows"]],
    }


def _node(like: str, at: int) -> tuple[Row, list[Row], list[Row]]:
    """A node, its GPUs and its tasks; each copy is busy and owned in another way."""
    line, name, copied = BOARD["line"], f"node{at + 1}", at > 2
    node = {**NODES[like], "name": name, "labels": {"rack": f"r{at % 4}"}}
    is_lost = at == 5
    if is_lost:
        node |= {"state": "offline", "reason": "no route to host", "gpus_free": 0, **dict.fromkeys(LOADS)}

    def task_id(task: str) -> str:
        return f"{task[:7]}{at:04}" if copied else task

    gpus = []
    for gpu in (gpu for gpu in line["gpus"] if gpu["node"] == like):
        one = {**gpu, "node": name, "tasks": [task_id(task) for task in gpu["tasks"]]}
        if copied:
            one["uuid"] = f"{gpu['uuid']}-{at}"
            if gpu["state"] == "unhealthy":
                one |= {"state": "free", "reason": "", "temperature_c": 40}
            elif one["tasks"]:
                one |= {"utilization_pct": (gpu["utilization_pct"] * (at + 3) * 7) % 101, "power_w": 90.0 + at % 9 * 30}
        if is_lost:
            one |= {"state": "unknown", "reason": "no route to host"}
        gpus.append(one)
    tasks = [
        {**task, "id": task_id(task["id"]), "batch": task_id(task["batch"]), "node": name}
        | ({"owner": OWNERS[at % 4], "mine": at % 4 == 0, "gpu_uuids": [f"{each}-{at}" for each in task["gpu_uuids"]]}
           if copied else {})
        for task in line["tasks"] if task["node"] == like and task["state"] == "running"
    ]  # fmt: skip
    return node, gpus, tasks


def _waiting() -> list[Row]:
    """One that nobody knows the start of, a batch that starts soon, and one that was put off."""
    batch = [
        {**WAITS, "id": f"2mz3tm000{at}k", "batch": "2mz3tm0000k", "name": "sweep", "owner": "alice",
         "position": 2 + at, "reason": "waits for node2::0", "target": "1x", "expected_start": _moment(1500 + 600 * at),
         "time_limit": 3600.0, "parameters": {"lr": f"0.{at + 1}"}}
        for at in range(4)
    ]  # fmt: skip
    later = {**WAITS, "id": "2mz3tn0000k", "batch": "2mz3tn0000k", "name": "nightly", "state": "scheduled",
             "position": None, "reason": None, "scheduled_for": _moment(20 * 3600), "target": "2xA100"}  # fmt: skip
    return [WAITS, *batch, later]


def history(line: Row, *, points: int, node: str = "", gpu: str = "", **_: object) -> Row:
    """The curves of these GPUs, or of all; and those of a node."""
    used = {kind: _curve(kind, points) for kind in range(6)}
    wanted, _, numbers = gpu.partition("::")
    chosen = [
        each
        for each in line["gpus"]
        if wanted in ("", each["node"]) and (not numbers or str(each["index"]) in numbers.split(","))
    ]
    curves = [
        {
            **{key: each[key] for key in ("node", "uuid", "index")},
            "utilization_pct": used[at % 5 if each["tasks"] else 5],
            "memory_used_mib": _curve(each["memory_used_mib"] or 0, points, flat=True),
            "temperature_c": _curve(each["temperature_c"] or 0, points, flat=True),
            "power_w": _curve(each["power_w"] or 0, points, flat=True),
        }
        for at, each in enumerate(chosen)
    ]
    fields = ("cores_busy", "memory_used_mib", "disk_used_mib", "network_in_bytes_per_second",
              "network_out_bytes_per_second", "temperature_c")  # fmt: skip
    machines = [{"node": node, **{field: used[at] for at, field in enumerate(fields)}}] if node else []
    return {"gpus": curves, "nodes": machines, "at": NOW, "step": 10.0}


@lru_cache(1000)
def _curve(kind: float, points: int, *, flat: bool = False) -> list[float | None]:
    """Of so many values: always the same, or up and down."""
    if flat:
        return [float(kind)] * points
    rest = 5 if kind == 5 else 60 + 8 * kind
    return [None if at < points // 10 else float(min(100, rest + (at * (3 + kind)) % 17)) for at in range(points)]
