"""The view of all GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import gpu_column, gpu_number, memory_in_use, watts
from agentless.model.nodes.device import parts_of
from agentless.tui.data.cluster import TREND_WORDS, Row, natural
from agentless.tui.screens.view import View
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece
from agentless.tui.widgets.table import TableColumn

TREND = 20
"""The width of the trend of the utilisation."""


class Gpus(View):
    """A row for each GPU."""

    KINDS = frozenset({"gpus", "nodes", "tasks"})

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("NODE", lambda gpu: gpu["node"], lambda gpu: (natural(gpu["node"]), parts_of(gpu_number(gpu)))),
            TableColumn("GPU", lambda gpu: str(gpu_number(gpu)), lambda gpu: parts_of(gpu_number(gpu)), right=True),
            TableColumn("MODEL", gpu_column, rank=3),
            TableColumn("STATE", lambda gpu: look.state_of(gpu, self.cluster)),
            TableColumn("UTIL", _utilization, lambda gpu: gpu["utilization_pct"], right=True),
            TableColumn(f"TREND {TREND_WORDS}", self._trend, rank=5),
            TableColumn("MEMORY", memory_in_use, lambda gpu: gpu["memory_used_mib"], right=True, rank=-1),
            TableColumn("TEMP", _temperature, lambda gpu: gpu["temperature_c"], right=True, rank=1),
            TableColumn("POWER", _power, lambda gpu: gpu["power_w"], right=True, rank=4),
            TableColumn("USED BY", self._who, flexible=True),
        )

    def all_rows(self) -> list[Row]:
        return self.cluster.ordered_gpus()

    def name_of(self, row: Row) -> object:
        return row["node"], row["uuid"]

    def task_of(self, row: Row) -> Row | None:
        return next(iter(self.cluster.holders(row)), None)

    def node_of(self, row: Row) -> str | None:
        return str(row["node"])

    def _who(self, gpu: Row) -> Piece:
        return look.who(gpu, self.cluster), "dim" if gpu["state"] == "drained" else ""

    def _trend(self, gpu: Row) -> Piece:
        return look.spark(self.cluster.trend(gpu), TREND), "held"


def _utilization(gpu: Row) -> Piece:
    return look.of(gpu["utilization_pct"], "%"), "dim" if not gpu["utilization_pct"] else ""


def _temperature(gpu: Row) -> Piece:
    celsius = gpu["temperature_c"]
    return look.of(celsius, "C"), "bad" if celsius is not None and celsius >= look.HOT else ""


def _power(gpu: Row) -> str:
    drawn = watts(gpu["power_w"])
    return drawn.replace(" ", f"/{gpu['power_limit_w']:.0f} ") if gpu["power_limit_w"] else drawn
