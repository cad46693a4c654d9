"""The view of all GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import idle, words
from agentless.tui.data.cluster import ClusterState, Row, natural
from agentless.tui.screens.view import View
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece
from agentless.tui.widgets.table import TableColumn

TREND = 20
"""Columns of the trend of the utilisation."""


class Gpus(View):
    """A line for each GPU."""

    KINDS = frozenset({"gpus", "nodes", "tasks"})

    def columns(self) -> Sequence[TableColumn]:
        """Numbers as nvidia-smi shows them, and who uses it."""
        return (
            TableColumn("NODE", lambda gpu: gpu["node"], lambda gpu: (natural(gpu["node"]), gpu["index"])),
            TableColumn("GPU", lambda gpu: str(gpu["index"]), lambda gpu: gpu["index"], right=True),
            TableColumn("MODEL", look.model, rank=3),
            TableColumn("STATE", lambda gpu: state_of(gpu, self.cluster)),
            TableColumn("UTIL", _utilization, lambda gpu: gpu["utilization_pct"], right=True),
            TableColumn("TREND", self._trend, rank=5),
            TableColumn("MEMORY", look.memory, lambda gpu: gpu["memory_used_mib"], right=True),
            TableColumn("TEMP", _temperature, lambda gpu: gpu["temperature_c"], right=True, rank=1),
            TableColumn("POWER", _power, lambda gpu: gpu["power_w"], right=True, rank=4),
            TableColumn("WHO", self._who, flexible=True),
        )

    def all_rows(self) -> list[Row]:
        """By node and index."""
        return self.cluster.ordered_gpus()

    def name_of(self, row: Row) -> object:
        """Its node and UUID."""
        return row["node"], row["uuid"]

    def task_of(self, row: Row) -> Row | None:
        """The task that holds it."""
        return next(iter(self.cluster.holders(row)), None)

    def node_of(self, row: Row) -> str | None:
        """Where it is."""
        return str(row["node"])

    def _who(self, gpu: Row) -> Piece:
        return who(gpu, self.cluster.holders(gpu)), "dim" if gpu["state"] == "drained" else ""

    def _trend(self, gpu: Row) -> Piece:
        return look.spark(self.cluster.trends.get((gpu["node"], gpu["uuid"]), ()), TREND), "held"


def state_of(gpu: Row, cluster: ClusterState) -> Piece:
    """The state of a GPU and its style; with a question mark where the node does not answer."""
    silent = cluster.is_silent(gpu["node"])
    return (f"{gpu['state']}?", "dim") if silent else (gpu["state"], look.style_of(gpu["state"]))


def who(gpu: Row, tasks: Sequence[Row]) -> str:
    """Who uses a GPU, or why nobody can; `tasks` are those that hold it."""
    if tasks and gpu["state"] == "allocated":
        return "; ".join(f"{task['owner']}  {task['name'] or words(task)}" for task in tasks) + idle(gpu)
    return "; ".join(filter(None, (gpu["reason"], gpu["reserved"])))


def _utilization(gpu: Row) -> Piece:
    return look.of(gpu["utilization_pct"], "%"), "dim" if not gpu["utilization_pct"] else ""


def _temperature(gpu: Row) -> Piece:
    celsius = gpu["temperature_c"]
    return look.of(celsius, "C"), "bad" if celsius is not None and celsius >= look.HOT else ""


def _power(gpu: Row) -> str:
    limit = f"/{gpu['power_limit_w']:.0f}" if gpu["power_limit_w"] else ""
    return "-" if gpu["power_w"] is None else f"{gpu['power_w']:.0f}{limit}W"
