"""The state of the cluster as far as it is known: the rows that the controller has sent so far."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from agentless.client.words import WAITING, cause_of, command_line, gpu_number, gpu_place, process_words, unix_time
from agentless.model.nodes.device import parts_of
from agentless.model.tasks.task import FAILED
from agentless.model.tasks.task_id import first_try
from agentless.tui.data.load import Load, load_of

Row = dict[str, Any]
"""A published value, as in JSON."""

TREND, STEP = 120, 5.0
"""Points in the trend of a GPU's utilisation, and the seconds of each: 10 minutes."""
TREND_WORDS, TREND_SHORT = "10 min", "10m"
HARDLY = 10
"""A GPU with a lower mean utilisation is hardly used."""
KEPT = 2000
"""Events that are kept, the newest."""
ENDED = 1000
"""Ended tasks that the controller sends, the newest. With this many there may be more."""
ENDED_WORKFLOWS = 100
"""Ended workflows that the controller sends, the newest."""
FAILED_WITHIN = 600.0
"""Seconds for which a failed task counts as a problem."""
STALE = 15.0
"""Seconds after which the last sample of a node is too old to describe it."""
_NUMBERS = ("utilization_pct", "memory_used_mib", "temperature_c", "power_w")


class ClusterState:
    """Nodes and clusters by name, GPUs by node and UUID, tasks and workflows by id, the newest events.

    `now` is the controller's clock.

    `gone` says why the controller is not heard, empty if it is. `stopped`: it was asked to end.
    """

    def __init__(self) -> None:
        self.gone, self.stopped = "Connecting to the controller", False
        self.events: deque[Row] = deque(maxlen=KEPT)
        self.clear()

    def clear(self) -> None:
        """Forget all rows, as before the first line."""
        self.nodes: dict[str, Row] = {}
        self.gpus: dict[tuple[str, str], Row] = {}
        self.clusters: dict[str, Row] = {}
        self.tasks: dict[str, Row] = {}
        self._users: Counter[str] | None = None  # how many owners have this user name
        self.workflows: dict[str, Row] = {}
        self.controller: Row = {}
        self.now = 0.0
        self.trends: dict[tuple[str, str], deque[float | None]] = {}
        self._slot = self._in_slot = 0

    def apply(self, line: Row) -> set[str]:
        """Apply a line of the stream; returns the kinds of rows that changed."""
        changed = line.keys() & {"nodes", "gpus", "clusters", "tasks", "workflows", "controller"}
        self._users = None
        self.now = line.get("now", self.now)
        for node in line.get("nodes", ()):
            self.nodes[node["name"]] = node
        for gpu in line.get("gpus", ()):
            self.gpus[gpu["node"], gpu["uuid"]] = gpu
        for cluster in line.get("clusters", ()):
            self.clusters[cluster["name"]] = cluster
        for task in line.get("tasks", ()):
            self.tasks[task["id"]] = task
        for workflow in line.get("workflows", ()):
            self.workflows[workflow["id"]] = workflow
        for about in line.get("controller", ()):
            self.controller = about
        for kind, *key in line.get("gone", ()):
            changed.add(kind)
            self._drop(kind, key)
        return changed

    def sampled(self) -> None:
        """Add the present utilisation of all GPUs to their trends, of which each point is a mean."""
        slot = int(self.now // STEP)
        skipped = max(0, slot - self._slot - 1)
        self._in_slot = self._in_slot + 1 if slot == self._slot else 1
        for gpu in self.ordered_gpus():
            trend = self.trends.setdefault((gpu["node"], gpu["uuid"]), deque(maxlen=TREND))
            now, last = gpu["utilization_pct"], trend[-1] if trend else None
            if trend and slot == self._slot:
                trend[-1] = last if now is None else now if last is None else last + (now - last) / self._in_slot
            else:
                trend.extend([None] * min(skipped, TREND) if trend else ())
                trend.append(now)
        self._slot = slot
        for key in self.trends.keys() - self.gpus.keys():
            del self.trends[key]

    def remember(self, history: Row) -> None:
        """Begin the trends with the samples that the controller has kept: as many points, as far apart."""
        for gpu in history["gpus"]:
            trend = self.trends.setdefault((gpu["node"], gpu["uuid"]), deque(maxlen=TREND))
            kept = gpu["utilization_pct"]
            trend.extendleft(reversed(kept[: max(0, len(kept) - len(trend))]))

    def trend(self, gpu: Row) -> list[float | None]:
        """The utilisation of a GPU in the last minutes, always as many points."""
        known = self.trends.get((gpu["node"], gpu["uuid"]), ())
        return [*[None] * (TREND - len(known)), *known]

    def gpus_of(self, node: str) -> list[Row]:
        """The GPUs of a node, by index."""
        return [gpu for gpu in self.ordered_gpus() if gpu["node"] == node]

    def ordered_nodes(self) -> list[Row]:
        """All nodes in natural order: node2 before node10."""
        return sorted(self.nodes.values(), key=lambda node: natural(node["name"]))

    def ordered_clusters(self) -> list[Row]:
        """All clusters in natural order."""
        return sorted(self.clusters.values(), key=lambda cluster: natural(cluster["name"]))

    def jobs(self, cluster: str) -> tuple[int, int]:
        """How many of our tasks run on a cluster, and how many wait in its queue or on the way there."""
        there = [task for task in self.tasks.values() if task["node"] == cluster and task["ended_at"] is None]
        runs = count(there, "running", "paused")
        return runs, len(there) - runs

    def ordered_gpus(self) -> list[Row]:
        """All GPUs by node and index; those of silent nodes without their numbers, which are old."""
        silent = {name for name in self.nodes if self.is_silent(name)}
        gpus = [{**gpu, **dict.fromkeys(_NUMBERS)} if gpu["node"] in silent else gpu for gpu in self.gpus.values()]
        return sorted(gpus, key=lambda gpu: (natural(gpu["node"]), parts_of(gpu_number(gpu))))

    def whole_gpus(self) -> list[Row]:
        """All GPUs, those that are divided among them."""
        return [gpu for gpu in self.gpus.values() if not gpu.get("parent")]

    def answering_gpus(self) -> list[Row]:
        """The whole GPUs of nodes that answer."""
        silent = {name for name in self.nodes if self.is_silent(name)}
        return [gpu for gpu in self.whole_gpus() if gpu["node"] not in silent]

    def load(self) -> Load:
        """The load of all GPUs of nodes that answer. What a GPU reads is also that of its parts."""
        gpus = self.answering_gpus()
        columns = ([gpu[name] for gpu in gpus] for name in ("utilization_pct", "memory_used_mib", "memory_total_mib"))
        return load_of(*columns)

    def slices(self) -> list[Row]:
        """The parts of the GPUs that are divided."""
        return [gpu for gpu in self.gpus.values() if gpu.get("parent")]

    def is_silent(self, name: str | None) -> bool:
        """Whether a node or cluster does not answer, so that its present state is unknown."""
        if cluster := self.clusters.get(name or ""):
            return bool(cluster["state"] != "online")
        node = self.nodes.get(name or "", {"state": "unknown"})
        if node["state"] != "degraded":
            return bool(node["state"] == "offline")
        return node["sampled_at"] is not None and self.now - unix_time(node["sampled_at"]) > STALE

    def queue(self) -> list[Row]:
        """The pending tasks in their order, then the blocked and the scheduled ones."""
        waiting = [task for task in self.tasks.values() if task["state"] in WAITING]
        return sorted(waiting, key=lambda t: (t["position"] or 1 << 30, t["scheduled_for"] or "", t["id"]))

    def vps(self) -> list[Row]:
        """The VPS of this controller, by name."""
        newest = {
            task["name"]: task for task in sorted(self.tasks.values(), key=lambda task: task["id"]) if is_vps(task)
        }
        return [newest[name] for name in sorted(newest)]

    def tasks_of(self, workflow: str) -> dict[str, Row]:
        """The last tries of the tasks of a workflow, by the ids of the first ones."""
        found: dict[str, Row] = {}
        for task in self.tasks.values():
            if task.get("workflow") == workflow and not task.get("foreign"):
                first = first_try(task["id"])
                if first not in found or found[first]["attempt"] <= task["attempt"]:
                    found[first] = task
        return found

    def who(self, owner: str) -> str:
        """An owner where there is little room: without the machine, unless others have the same user name."""
        user = owner.partition("@")[0]
        if self._users is None:
            owners = {task["owner"] for task in self.tasks.values()}
            self._users = Counter(each.partition("@")[0] for each in owners)
        return owner if self._users[user] > 1 else user

    def called(self, task: Row) -> str:
        """Whose task it is, and which one, where there is little room: `ann train`."""
        return f"{self.who(task['owner'])} {task['name'] or command_line(task)}"

    def holders(self, gpu: Row) -> list[Row]:
        """The known tasks that hold a GPU."""
        return [self.tasks[task] for task in gpu["tasks"] if task in self.tasks]

    def is_wasted(self, gpu: Row) -> bool:
        """Whether tasks have had a GPU for as long as its trend is, and hardly used it."""
        tasks = self.holders(gpu)
        begun = [unix_time(task["started_at"]) for task in tasks if task["state"] == "running" and task["started_at"]]
        if gpu["state"] != "allocated" or not tasks or len(begun) < len(tasks) or self.now - max(begun) < TREND * STEP:
            return False
        known = [each for each in self.trend(gpu) if each is not None]
        return len(known) > TREND // 2 and sum(known) < HARDLY * len(known)

    def problems(self) -> list[tuple[str, str]]:
        """The problems: each as what it is about, and a sentence."""
        found = [
            (node["name"], f"{node['state']}: {cause_of(node['name'], node['reason'])}")
            for node in (*self.ordered_nodes(), *self.ordered_clusters())
            if is_bad(node)
        ]
        found += [(node["name"], node["cards"]) for node in self.ordered_nodes() if node["cards"]]
        bad = {node["name"] for node in self.nodes.values() if is_bad(node)}
        for gpu in self.ordered_gpus() if any(is_ill(gpu) for gpu in self.gpus.values()) else ():
            if is_ill(gpu) and gpu["node"] not in bad:
                found += [(gpu_place(gpu), f"{gpu['state']}: {gpu['reason']}{_remedy(gpu)}")]
        failed = [task for task in self.tasks.values() if task["state"] in FAILED and not task["retried_as"]]
        if lately := sum(self.now - unix_time(task["ended_at"]) < FAILED_WITHIN for task in failed):
            about = f"{lately} task{'s' * (lately != 1)}"
            found.append((about, "failed in the last 10 minutes; press 4 to list them, l for the log"))
        for task in self.tasks.values():
            if task["state"] == "lost":
                found.append((task["id"], f"lost: {task['reason']}"))
            for process in task["intruders"]:
                words = f"{process_words(process)} uses its GPU; to end that, on {task['node']}: kill {process['pid']}"
                found.append((task["id"], words))
            if task["idle_since"]:
                words = f"{task['reason'] or 'GPUs idle'}; to free its GPUs: agentless stop {task['id']}"
                found.append((task["id"], words))
        return found + [("controller", warning) for warning in self.controller.get("warnings", ())]

    def _drop(self, kind: str, key: list[str]) -> None:
        if kind == "nodes":
            self.nodes.pop(key[0], None)
        elif kind == "clusters":
            self.clusters.pop(key[0], None)
        elif kind == "tasks":
            self.tasks.pop(key[0], None)
        elif kind == "workflows":
            self.workflows.pop(key[0], None)
        else:
            self.gpus.pop((key[0], key[1]), None)


def is_vps(task: Row) -> bool:
    """Whether a task is a VPS of this controller."""
    return task.get("workload") == "vps" and not task.get("foreign")


def is_bad(node: Row) -> bool:
    """Whether something is wrong with a node; a drained one is as somebody wants it."""
    return node["state"] in ("offline", "degraded", "unknown")


def is_ill(gpu: Row) -> bool:
    """Whether something is wrong with a GPU."""
    return gpu["state"] in ("unhealthy", "unknown")


def _remedy(gpu: Row) -> str:
    """What to do about an ill GPU, to go on with its reason."""
    node = gpu["node"]
    if gpu["state"] == "unhealthy":
        return f"; when repaired: agentless nodes resume {node} --gpu {gpu['index']}"
    return f"; to see why: agentless doctor {node}"


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key by which node2 comes before node10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name))


def count(rows: Iterable[Row], *states: str) -> int:
    """How many of the rows are in one of these states."""
    return sum(row["state"] in states for row in rows)
