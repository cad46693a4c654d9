"""A GPU in full."""

from __future__ import annotations

from functools import partial
from typing import Any

from agentless.client.words import (
    command_line,
    gpu_model,
    gpu_place,
    gpu_reason,
    gpu_state,
    local,
    memory_in_use,
    process_words,
)
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.parts import Part, colour_of, curves, labelled
from agentless.tui.widgets import look


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
            (printable(f"{gpu_place(gpu)}  {gpu_model(gpu)}  "), "bold"),
            (gpu_state(gpu), colour_of(gpu["state"])),
            f"  {printable(gpu_reason(gpu))}\n\n",
        ]
        power = f"{look.of(gpu['power_w'], ' W')} of {look.of(gpu['power_limit_w'], ' W')}"
        parts += labelled(
            [
                ("UUID", gpu["uuid"]),
                ("slice of", gpu.get("parent")),
                ("driver", gpu["driver"]),
                ("utilization", look.of(gpu["utilization_pct"], "%")),
                ("memory", memory_in_use(gpu)),
                ("temperature", look.of(gpu["temperature_c"], " C")),
                ("power", power),
                ("reserved", gpu["reserved"]),
                ("idle since", local(gpu["idle_since"])),
            ]
        )
        for task in self.cluster.holders(gpu):
            parts += [
                ("task         ", "dim"),
                printable(f"{task['id']}  {task['owner']}  {command_line(task)}") + "\n",
            ]
        for process in gpu["processes"]:
            parts += [("process      ", "dim"), f"{printable(process_words(process))}\n"]
        trend = self.cluster.trends.get((gpu["node"], gpu["uuid"]), ())
        parts += [
            ("\nUtilization, last 2 minutes\n", "bold"),
            (look.spark(trend, self._curve_width()) + "\n", "$text-primary"),
        ]
        return parts

    def asked(self) -> list[Part]:
        name = gpu_place(self.gpu)
        self._hour = self.get("/v1/history", since=self.SPAN, points=self.POINTS, gpu=name)
        return self._curves()

    def _curves(self) -> list[Part]:
        gpu, found = self.gpu, self._hour
        if not found or isinstance(found, str) or not found["gpus"]:
            return [f"\n{found}\n"] if isinstance(found, str) else []
        total = gpu["memory_total_mib"] or 1
        shown = [
            ("Utilization", "utilization_pct", 100.0, "%"),
            ("Memory", "memory_used_mib", float(total), " MiB"),
            ("Temperature", "temperature_c", 100.0, " C"),
            ("Power", "power_w", float(gpu["power_limit_w"] or 1000), " W"),
        ]
        named = [(title, field, top, partial(look.of, unit=unit)) for title, field, top, unit in shown]
        return curves(found["gpus"][0], named, self._curve_width())

    def _curve_width(self) -> int:
        return max(10, self.size.width - 4)
