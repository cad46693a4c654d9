"""A node in full."""

from __future__ import annotations

from agentless.client.words import gpu_model, local, memory, memory_in_use
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.parts import Part, colour_of, labelled
from agentless.tui.widgets import look


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
            (node["state"], colour_of(node["state"])),
            f"  {printable(node['reason'])}\n\n",
        ]
        parts += labelled(
            [
                ("address", f"{node['address']} by {node['connection']}"),
                ("cores", node["cores"]),
                ("memory", memory(node["memory_mib"]) if node["memory_mib"] else None),
                ("Docker", node["docker"]),
                ("driver", node["driver"]),
                ("labels", " ".join(f"{key}={value}" for key, value in node["labels"].items())),
                ("tasks", node["tasks"]),
                ("seen", local(node["sampled_at"])),
            ]
        )
        for gpu in self.cluster.gpus_of(self.about_node):
            parts += [
                f"  {gpu['index']} {printable(gpu_model(gpu))}  ",
                (f"{gpu['state']:10}", colour_of(gpu["state"])),
                f"{look.of(gpu['utilization_pct'], '%'):>5} {memory_in_use(gpu):>13}  ",
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
            sign = ("warn ", "$text-warning") if check.get("verdict") == "warning" else signs[check["ok"]]
            parts += ["  ", sign, f"{check['check']:12} {printable(check['detail'])}\n"]
        return parts
