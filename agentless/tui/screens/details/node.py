"""A node in full."""

from __future__ import annotations

from functools import partial
from typing import Any

from agentless.client.words import (
    gpu_column,
    gpu_number,
    gpu_reason,
    gpu_state,
    host_lines,
    local,
    memory,
    memory_in_use,
    numa_lines,
    rate,
)
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.parts import Curve, Part, colour_of, curves, labelled
from agentless.tui.widgets import look


class NodeDetails(Details):
    """A node: its hardware, its GPUs, and the checks of `doctor`."""

    SPAN = 3600.0
    POINTS = 360
    """Points of the last hour: as many as there are readings."""

    def __init__(self, cluster: ClusterState, name: str) -> None:
        super().__init__(cluster)
        self.about_node = name
        self._checks: list[Part] = []
        self._hour: Any = None

    @property
    def about_task(self) -> None:
        """None: there may be many."""

    def known(self) -> list[Part]:
        node = self.cluster.nodes.get(self.about_node)
        if node is None:
            return [f"{self.about_node} is no longer in the inventory"]
        parts: list[Part] = [
            (f"{node['name']}  ", "bold"),
            (node["state"], colour_of(node["state"])),
            f"  {printable(node['reason'])}\n\n",
        ]
        parts += labelled(
            [
                ("address", f"{node['address']} by {node['connection']}"),
                *host_lines(node).items(),
                *[("" if number else "NUMA", line) for number, line in enumerate(numa_lines(node))],
                ("Docker", node["docker"]),
                ("driver", node["driver"]),
                ("cards", node["cards"]),
                ("labels", " ".join(f"{key}={value}" for key, value in node["labels"].items())),
                ("tasks", node["tasks"]),
                ("seen", local(node["sampled_at"])),
            ]
        )
        for gpu in self.cluster.gpus_of(self.about_node):
            parts += [
                f"  {gpu_number(gpu)} {printable(gpu_column(gpu))}  ",
                (f"{gpu_state(gpu):10}", colour_of(gpu["state"])),
                f"{look.of(gpu['utilization_pct'], '%'):>5} {memory_in_use(gpu):>13}  ",
                f"{printable(gpu_reason(gpu))}\n",
            ]
        return parts

    def on_resize(self) -> None:
        """Draw the curves for the new width."""
        self._show_asked([*self._curves(), *self._checks])

    def asked(self) -> list[Part]:
        self._hour = self.get("/v1/history", since=self.SPAN, points=self.POINTS, node=self.about_node)
        found = self.get("/v1/doctor", node=self.about_node)
        if isinstance(found, str):
            return [found]
        parts: list[Part] = [("\nChecks\n", "bold")]
        signs = {True: ("ok   ", "$text-success"), False: ("FAIL ", "$text-error"), None: ("-    ", "dim")}
        for check in found:
            sign = ("warn ", "$text-warning") if check.get("verdict") == "warning" else signs[check["ok"]]
            parts += ["  ", sign, f"{check['check']:12} {printable(check['detail'])}\n"]
        self._checks = parts
        return [*self._curves(), *parts]

    def _curves(self) -> list[Part]:
        """How busy the machine was in the last hour, as far as that is known."""
        node, found = self.cluster.nodes.get(self.about_node), self._hour
        if node is None or not found or isinstance(found, str) or not found["nodes"]:
            return []
        hour = found["nodes"][0]
        busiest = (value for way in ("in", "out") for value in hour[f"network_{way}_bytes_per_second"] if value)
        most = max(busiest, default=1.0)
        shown: list[Curve] = [
            ("Cores", "cores_busy", float(node["cores"] or 1), partial(look.of, unit="")),
            ("Memory", "memory_used_mib", float(node["memory_mib"] or 1), _size),
            ("Temperature", "temperature_c", 100.0, partial(look.of, unit=" C")),
            ("Network in", "network_in_bytes_per_second", most, rate),
            ("Network out", "network_out_bytes_per_second", most, rate),
        ]
        known = [each for each in shown if any(value is not None for value in hour[each[1]])]
        return curves(hour, known, max(10, self.size.width - 4))


def _size(mib: float | None) -> str:
    return memory(None if mib is None else int(mib))
