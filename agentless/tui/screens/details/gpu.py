"""A GPU in full."""

from __future__ import annotations

from collections.abc import Iterable

from agentless.client.words import (
    command_line,
    gpu_model,
    gpu_place,
    gpu_reason,
    gpu_state,
    left,
    local,
    memory_in_use,
    watts,
)
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.curves import GpuCurves
from agentless.tui.screens.details.parts import Part, beside, colour_of, processes
from agentless.tui.widgets import look
from agentless.tui.widgets.curves import Curves


class GpuDetails(Details):
    """A GPU: its numbers, its users, and its readings over time."""

    def __init__(self, cluster: ClusterState, gpu: Row) -> None:
        super().__init__(cluster)
        self._gpu = gpu

    def curves(self) -> Iterable[Curves]:
        yield GpuCurves(self.cluster, self._gpu)

    def ask(self) -> None:
        """Nothing: all but the curves is known."""

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.cluster_changed(set(self.KINDS))

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
        power = f"{watts(gpu['power_w'])} of {watts(gpu['power_limit_w'])}"
        fields = [
            ("utilization", look.of(gpu["utilization_pct"], "%")),
            ("memory", memory_in_use(gpu)),
            ("temperature", look.of(gpu["temperature_c"], "C")),
            ("power", power),
            ("driver", gpu["driver"]),
            ("reserved", (gpu["reserved"] or "").removeprefix("reserved ") or None),
            ("idle since", local(gpu["idle_since"])),
            ("UUID", gpu["uuid"]),
            ("slice of", gpu.get("parent")),
        ]
        width = max(10, self.size.width - 3)
        parts += beside(fields, width)
        for task in self.cluster.holders(gpu):
            name = f" ({task['name']})" if task["name"] else ""
            words = f"{task['id']}{name}  {left(task)}  {task['owner']}  {command_line(task)}"
            parts += [("task           ", "dim"), printable(words) + "\n"]
        parts += processes(gpu["processes"], width)
        return parts
