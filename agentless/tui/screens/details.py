"""A task, a GPU or a node in full, on a screen of its own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from agentless.client.client import Breaker, BrokenOff
from agentless.client.words import local, process_words, ran, state, where, words
from agentless.errors import AgentlessError
from agentless.model.text import printable
from agentless.model.units import format_duration
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import content

Part = str | tuple[str, str]


class Details(Screen[None]):
    """The base: some parts are in the state of the cluster, others are asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen", "Back", tooltip="leave this screen"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]
    CSS = """
    Details VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }
    """
    KINDS: ClassVar[frozenset[str]] = frozenset({"tasks", "gpus", "nodes"})

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self.cluster = cluster
        self._breaker = Breaker()

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="known")
            yield Static(id="asked")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show what is known, and ask for the rest."""
        self.cluster_changed(set(self.KINDS))
        self.ask()

    def ask(self) -> None:
        """Ask the controller for what the state of the cluster lacks; an earlier request is broken off."""
        self._breaker.break_off()
        self._breaker = Breaker()
        self.run_worker(partial(self._ask, self._breaker), thread=True)

    def on_unmount(self) -> None:
        self._breaker.break_off()

    def cluster_changed(self, changed: set[str]) -> None:
        """Show what is known now."""
        if changed & self.KINDS and self.is_mounted:
            self.query_one("#known", Static).update(content(*self.known()))

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def known(self) -> list[Part]:
        """The parts that are in the state of the cluster."""
        raise NotImplementedError

    def asked(self) -> list[Part]:
        """The parts that the controller is asked for; called in a thread."""
        raise NotImplementedError

    def _ask(self, breaker: Breaker) -> None:
        try:
            with breaker.watching():
                parts = self.asked()
        except BrokenOff:
            return
        if breaker is self._breaker:
            self.app.call_from_thread(self._show_asked, parts)

    def _show_asked(self, parts: list[Part]) -> None:
        if self.is_mounted:
            self.query_one("#asked", Static).update(content(*parts))

    def get(self, path: str, **query: object) -> Any:
        """The answer to a request, or the sentence why there is none."""
        try:
            return self.app.client.get(path, **query)  # type: ignore[attr-defined]
        except AgentlessError as error:
            return str(error)


class TaskDetails(Details):
    """A task: its request, why it is pending, its events, and its script."""

    def __init__(self, cluster: ClusterState, task: Row) -> None:
        super().__init__(cluster)
        self._row = task

    @property
    def about_task(self) -> Row:
        """The task in its present state."""
        return self.cluster.tasks.get(self._row["id"], self._row)

    @property
    def about_node(self) -> str | None:
        node: str | None = self.about_task["node"]
        return node

    def cluster_changed(self, changed: set[str]) -> None:
        """Show it again, and ask again if the task has changed."""
        before, self._row = self._row, self.about_task
        super().cluster_changed(changed)
        if before["state"] != self._row["state"] or before["position"] != self._row["position"]:
            self.ask()

    def known(self) -> list[Part]:
        task = self.about_task
        gpus = ", ".join(task["gpu_uuids"])
        fields = [
            ("owner", task["owner"]),
            ("wants", task["target"]),
            ("where", where(task) if task["node"] else ""),
            ("GPUs", gpus),
            ("time", ran(task)),
            ("command", words(task)),
            ("image", task["image"]),
            ("variables", ", ".join(task["env_names"])),
            ("cores", task["cores"]),
            ("memory", look.gib(task["memory_bytes"] / 2**20) if task["memory_bytes"] else None),
            ("time limit", format_duration(task["time_limit"]) if task["time_limit"] else None),
            ("priority", task["priority"] or None),
            ("batch", task["batch"] if task["batch"] != task["id"] else None),
            ("parameters", ", ".join(f"{key}={value}" for key, value in task["parameters"].items())),
            ("labels", ", ".join(f"{key}={value}" for key, value in task["labels"].items())),
            ("try", f"{task['attempt']} of {task['retries'] + 1}" if task["retries"] else None),
            ("created", local(task["created_at"])),
            ("started", local(task["started_at"])),
            ("ended", local(task["ended_at"])),
            ("expected start", local(task["expected_start"])),
            ("container", task["container"]),
            ("reason", task["reason"]),
        ]
        title = printable(f"{task['id']}  {task['name'] or ''}")
        parts: list[Part] = [(f"{title.strip()}  ", "bold"), (state(task), _colour(task["state"])), "\n\n"]
        parts += _fields(fields)
        for process in task["intruders"]:
            parts += [("intruder  ", "$text-error"), f"{printable(process_words(process))}\n"]
        return parts

    def asked(self) -> list[Part]:
        task = self.about_task
        parts: list[Part] = []
        if task["state"] in ("pending", "scheduled"):
            parts += [("\nWhy it waits\n", "bold"), *explained(self.get(f"{path_of(task)}/explain"))]
        parts.append(("\nEvents\n", "bold"))
        found = self.get(f"{path_of(task)}/events")
        if isinstance(found, str):
            parts.append(f"  {found}\n")
        else:
            for event in found:
                when = datetime.fromtimestamp(event["at"], UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
                parts += [
                    (f"  {when}  ", "dim"),
                    (f"{event['event']} → {event['task']['state']}", _colour(event["task"]["state"])),
                    f"  {printable(event['cause'])}\n",
                ]
        parts.append(("\nScript, as the node's sh runs it\n", "bold"))
        script = self.get(f"{path_of(task)}/script")
        if isinstance(script, str):
            parts.append(f"  {script}\n")
        else:
            # Values in it may have line breaks: the bar says what is of the script.
            lines = "".join(f"  │ {line}\n" for line in script["script"].split("\n"))
            parts += [(f"  # {script['node']}, {script['address']}\n", "dim"), lines]
        return parts


class GpuDetails(Details):
    """A GPU: its numbers, its users, and the last hour."""

    SPAN = 3600.0
    POINTS = 720
    """Points of the last hour: more than there are columns."""
    AGAIN = 60.0
    """Seconds until the last hour is asked for again."""

    def __init__(self, cluster: ClusterState, gpu: Row) -> None:
        super().__init__(cluster)
        self._gpu = gpu
        self._hour: Any = None

    def on_mount(self) -> None:
        """Ask again from time to time."""
        self.set_interval(self.AGAIN, self.ask)

    def on_resize(self) -> None:
        """Draw the curves for the new width."""
        self.cluster_changed(set(self.KINDS))
        self._show_asked(self._curves())

    @property
    def gpu(self) -> Row:
        """The GPU in its present state."""
        return self.cluster.gpus.get((self._gpu["node"], self._gpu["uuid"]), self._gpu)

    @property
    def about_task(self) -> Row | None:
        return next(iter(self.cluster.holders(self.gpu)), None)

    @property
    def about_node(self) -> str | None:
        return str(self.gpu["node"])

    def known(self) -> list[Part]:
        gpu = self.gpu
        parts: list[Part] = [
            (printable(f"{gpu['node']}::{gpu['index']}  {look.model(gpu)}  "), "bold"),
            (gpu["state"], _colour(gpu["state"])),
            f"  {printable(gpu['reason'])}\n\n",
        ]
        power = f"{look.of(gpu['power_w'], ' W')} of {look.of(gpu['power_limit_w'], ' W')}"
        parts += _fields(
            [
                ("UUID", gpu["uuid"]),
                ("driver", gpu["driver"]),
                ("utilisation", look.of(gpu["utilization_pct"], "%")),
                ("memory", look.memory(gpu)),
                ("temperature", look.of(gpu["temperature_c"], " C")),
                ("power", power),
                ("reserved", gpu["reserved"]),
                ("idle since", local(gpu["idle_since"])),
            ]
        )
        for task in self.cluster.holders(gpu):
            parts += [("task         ", "dim"), printable(f"{task['id']}  {task['owner']}  {words(task)}") + "\n"]
        for process in gpu["processes"]:
            parts += [("process      ", "dim"), f"{printable(process_words(process))}\n"]
        trend = self.cluster.trends.get((gpu["node"], gpu["uuid"]), ())
        parts += [
            ("\nUtilisation, the last two minutes\n", "bold"),
            (look.spark(trend, self._room()) + "\n", "$text-primary"),
        ]
        return parts

    def asked(self) -> list[Part]:
        name = f"{self.gpu['node']}::{self.gpu['index']}"
        self._hour = self.get("/v1/history", since=self.SPAN, points=self.POINTS, gpu=name)
        return self._curves()

    def _curves(self) -> list[Part]:
        gpu, found = self.gpu, self._hour
        if not found or isinstance(found, str) or not found["gpus"]:
            return [f"\n{found}\n"] if isinstance(found, str) else []
        total = gpu["memory_total_mib"] or 1
        curves = (("Utilisation", "utilization_pct", 100.0, "%"), ("Memory", "memory_used_mib", float(total), " MiB"),
                  ("Temperature", "temperature_c", 100.0, " C"),
                  ("Power", "power_w", float(gpu["power_limit_w"] or 1000), " W"))  # fmt: skip
        parts: list[Part] = []
        for title, field, top, unit in curves:
            values = found["gpus"][0][field]
            last = next((value for value in reversed(values) if value is not None), None)
            parts.append((f"\n{title}, the last hour, 0 to {top:g}{unit}; now {look.of(last, unit)}\n", "bold"))
            parts += [(line + "\n", "$text-primary") for line in look.plot(values, self._room(), 4, top)]
        return parts

    def _room(self) -> int:
        return max(10, self.size.width - 4)


class NodeDetails(Details):
    """A node: its hardware, its GPUs, and the checks of `doctor`."""

    def __init__(self, cluster: ClusterState, name: str) -> None:
        super().__init__(cluster)
        self.about_node = name

    @property
    def about_task(self) -> None:
        """None: there may be many."""

    def known(self) -> list[Part]:
        node = self.cluster.nodes.get(self.about_node)
        if node is None:
            return [f"{self.about_node} is no longer in the inventory"]
        parts: list[Part] = [
            (f"{node['name']}  ", "bold"),
            (node["state"], _colour(node["state"])),
            f"  {printable(node['reason'])}\n\n",
        ]
        parts += _fields(
            [
                ("address", f"{node['address']} by {node['connection']}"),
                ("cores", node["cores"]),
                ("memory", look.gib(node["memory_mib"])),
                ("Docker", node["docker"]),
                ("driver", node["driver"]),
                ("labels", " ".join(f"{key}={value}" for key, value in node["labels"].items())),
                ("tasks", node["tasks"]),
                ("seen", local(node["sampled_at"])),
            ]
        )
        for gpu in self.cluster.gpus_of(self.about_node):
            parts += [
                f"  {gpu['index']} {printable(look.model(gpu))}  ",
                (f"{gpu['state']:10}", _colour(gpu["state"])),
                f"{look.of(gpu['utilization_pct'], '%'):>5} {look.memory(gpu):>10}  ",
                f"{printable(gpu['reason'])}\n",
            ]
        return parts

    def asked(self) -> list[Part]:
        found = self.get("/v1/doctor", node=self.about_node)
        if isinstance(found, str):
            return [found]
        parts: list[Part] = [("\nChecks\n", "bold")]
        signs = {True: ("ok   ", "$text-success"), False: ("FAIL ", "$text-error"), None: ("-    ", "dim")}
        for check in found:
            parts += ["  ", signs[check["ok"]], f"{check['check']:8} {printable(check['detail'])}\n"]
        return parts


def explained(found: Any) -> list[Part]:
    """The answer of `explain`, as text."""
    if isinstance(found, str):
        return [f"  {found}\n"]
    parts: list[Part] = [f"{printable(found['summary'])}\n"]
    for name in dict.fromkeys((*(each["node"] for each in found["obstacles"]), *found["remedies"])):
        for each in found["obstacles"]:
            if each["node"] == name:
                parts += [(f"  {name}: ", "$text-primary"), f"{printable(each['text'])}\n"]
                parts += [(f"    {printable(line)}\n", "dim") for line in each["details"]]
        if helps := found["remedies"].get(name):
            parts.append((f"    it would fit: {'; or '.join(map(printable, helps))}\n", "$text-success"))
    return parts


def _fields(fields: Iterable[tuple[str, object]]) -> list[Part]:
    parts: list[Part] = []
    for name, value in fields:
        if value not in (None, ""):
            parts += [(f"{name:14} ", "dim"), f"{printable(str(value))}\n"]
    return parts


_COLOURS: dict[str, str] = {
    "good": "$text-success", "warn": "$text-warning", "bad": "$text-error", "odd": "$text-accent",
    "held": "$text-primary", "dim": "dim",
}  # fmt: skip


def _colour(state: str) -> str:
    return _COLOURS.get(look.style_of(state), "")
