"""A node in full."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len

from agentless.client.words import (
    cause_of,
    engine_version,
    gpu_column,
    gpu_number,
    gpu_reason,
    gpu_state,
    host_lines,
    local,
    memory_in_use,
    numa_lines,
)
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.curves import NodeCurves
from agentless.tui.screens.details.parts import Part, beside, colour_of
from agentless.tui.widgets import look
from agentless.tui.widgets.curves import Curves
from agentless.tui.widgets.lines import fitted

LEAST = 16
"""The least columns of words behind the numbers of a GPU: others stand below them."""


class NodeDetails(Details):
    """A node: its hardware, its GPUs, its readings over time, and the checks of `doctor`."""

    def __init__(self, cluster: ClusterState, name: str) -> None:
        super().__init__(cluster)
        self.about_node = name

    def curves(self) -> Iterable[Curves]:
        yield NodeCurves(self.cluster, self.about_node)

    @property
    def about_task(self) -> None:
        """None: there may be many."""

    def known(self) -> list[Part]:
        node = self.cluster.nodes.get(self.about_node)
        if node is None:
            return [f"{self.about_node} is no longer in the inventory"]
        width = max(10, self.size.width - 3)
        parts: list[Part] = [
            (f"{node['name']}  ", "bold"),
            (node["state"], colour_of(node["state"])),
            f"  {printable(cause_of(node['name'], node['reason']))}\n\n",
        ]
        parts += beside(
            [
                ("address", f"{node['address']} by {node['connection']}"),
                *host_lines(node).items(),
                *[(f"NUMA {number}", line) for number, _, line in (each.partition(": ") for each in numa_lines(node))],
                ("Docker", engine_version(node) if node["docker"] else None),
                ("driver", node["driver"]),
                ("cards", node["cards"]),
                ("labels", " ".join(f"{key}={value}" for key, value in node["labels"].items())),
                ("tasks", node["tasks"]),
                ("seen", local(node["sampled_at"])),
            ],
            width,
        )
        gpus = self.cluster.gpus_of(self.about_node)
        parts += ["\n"] if gpus else []
        for gpu in gpus:
            start = f"  {gpu_number(gpu)} {printable(gpu_column(gpu))}  "
            numbers = f"{look.of(gpu['utilization_pct'], '%'):>5} {memory_in_use(gpu):>13}  "
            words = gpu_reason(gpu) if gpu["intruders"] else look.who(gpu, self.cluster)
            room = width - cell_len(start) - 10 - cell_len(numbers)
            below = "\n    " if words and room < LEAST else ""
            if gpu["state"] == "allocated" and not gpu["intruders"]:  # else it is a reason: shown in full
                words = fitted(words, width - 4 if below else room).rstrip()
            state = (f"{gpu_state(gpu):10}", colour_of(gpu["state"]))
            parts += [start, state, numbers.rstrip() if below else numbers, f"{below}{printable(words)}\n"]
        return parts

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.cluster_changed(set(self.KINDS))

    def asked(self) -> list[Part]:
        found = self.get("/v1/doctor", node=self.about_node)
        if isinstance(found, str):
            return [found]
        parts: list[Part] = [("\nChecks\n", "bold")]
        signs = {True: ("ok   ", "$text-success"), False: ("FAIL ", "$text-error"), None: ("-    ", "dim")}
        for check in found:
            sign = ("warn ", "$text-warning") if check.get("verdict") == "warning" else signs[check["ok"]]
            parts += ["  ", sign, f"{check['check']:12} {printable(check['detail'])}\n"]
        return parts
