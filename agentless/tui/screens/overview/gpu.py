"""A GPU as it is drawn: a tile, a row, or a cell of a heat map."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from rich.cells import cell_len

from agentless.client.words import gpu_number, left, memory_in_use, watts
from agentless.tui.data.cluster import TREND_SHORT, ClusterState, Row
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece, fitted

ROOMY = 60
"""The least width of a row with the temperature, and with the unit of its memory in full."""
POWER = 76
"""The least width of a row with the power."""
WITH_CURVE = 100
"""The least width of a row with a curve."""
UTIL, MEM = "util", "mem"
"""What the bars are of."""
FIGURE = 11
"""The least width of the number behind a bar: `61.2/80 GiB`."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What the cells of a heat map show: a number of two digits, and a share from 0 to 1 for its colour.

    `warms`: much of it is too much.
    """

    name: str
    unit: str
    number: Callable[[Row], float | None]
    share: Callable[[Row], float | None]
    warms: bool = False

    def style(self, share: float | None) -> str:
        """The style of a sign as high as a share."""
        if not self.warms or share is None:
            return "util"
        return "bad" if share >= look.HOT / 100 else "warm" if share >= look.WARM / 100 else "util"


def _percent(share: Callable[[Row], float | None]) -> Callable[[Row], float | None]:
    return lambda gpu: None if (found := share(gpu)) is None else found * 100


def _of_100_degrees(gpu: Row) -> float | None:
    return None if gpu["temperature_c"] is None else gpu["temperature_c"] / 100


METRICS = (
    Metric("utilization", "%", lambda gpu: gpu["utilization_pct"], look.load_share),
    Metric("memory", "%", _percent(look.memory_share), look.memory_share),
    Metric("temperature", "C", lambda gpu: gpu["temperature_c"], _of_100_degrees, warms=True),
    Metric("power", "% of its limit", _percent(look.power_share), look.power_share, warms=True),
)


class GpuPainter:
    """Draws the GPUs of a cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def tile(self, gpu: Row, part: int, width: int, height: int, chosen: str) -> list[Piece]:
        """A line of a tile: state, utilization, memory, a curve in what is left, and who has it."""
        state, style = look.state_of(gpu, self._cluster)
        wide = width - 1
        if part == 0:
            hot, power = look.of(gpu["temperature_c"], "C"), watts(gpu["power_w"])
            left = fitted(f"{gpu_number(gpu)} {state}", max(0, wide - len(hot) - len(power) - 1))
            return [
                (left, f"strong {style}{chosen}"),
                (hot, look.heat_of(gpu) + chosen),
                (f" {power}", look.power_style(gpu) + chosen),
                (" ", ""),
            ]
        if part == 1:
            return [*self._meter(UTIL, gpu, wide), (" ", "")]
        if part == 2:
            return [*self._meter(MEM, gpu, wide), (" ", "")]
        if part < height - 1:
            return [(look.curve(self._cluster.trend(gpu), wide, height - 4)[part - 3], "util"), (" ", "")]
        return [*self._holder(gpu, wide), (" ", "")]

    def row(self, gpu: Row, width: int, chosen: str) -> list[Piece]:
        """A line for a GPU."""
        state, style = look.state_of(gpu, self._cluster)
        used, share = gpu["utilization_pct"], look.memory_share(gpu)
        bar = max(3, min(20, (width - 50) // 4))
        memory, numbers = memory_in_use(gpu), f" {look.of(gpu['temperature_c'], 'C'):>4}"
        pieces: list[Piece] = [
            (f"{gpu_number(gpu):>3} ", f"strong {style}{chosen}"),
            (f"{UTIL} ", "dim"),
            *look.bar(look.load_share(gpu), bar, "util", alarm=self._cluster.is_wasted(gpu)),
            (f"{look.of(used, '%'):>5} ", ""),
            (f"{MEM} ", "dim"),
            *look.bar(share, bar, "mem", alarm=look.is_full(share)),
            (f"{memory:>13}" if width >= ROOMY else f"{memory.replace(' GiB', 'G', 1):>10}", ""),
            *([(numbers, look.heat_of(gpu))] if width >= ROOMY else []),
            *([(f" {watts(gpu['power_w']):>6}", look.power_style(gpu))] if width >= POWER else []),
            *([(f"  {TREND_SHORT} ", "dim"), *self._curve(gpu, width // 8)] if width >= WITH_CURVE else []),
            ("  ", ""),
        ]
        rest = max(0, width - 1 - sum(cell_len(text) for text, _ in pieces))
        if gpu["state"] in ("allocated", "foreign"):
            return [*pieces, *self._holder(gpu, rest), (" ", "")]
        words = look.who(gpu, self._cluster)
        if not words.startswith(state):
            words = f"{state}: {words}" if words else state
        return [*pieces, (fitted(words, rest), style), (" ", "")]

    def cell(self, gpu: Row, metric: Metric, width: int, chosen: str) -> list[Piece]:
        """A cell of a heat map: a number on its colour, or a sign."""
        silent = self._cluster.is_silent(gpu["node"])
        style, share = look.state_of(gpu, self._cluster)[1], metric.share(gpu)
        sign = look.SIGNS["unknown"] if silent else look.SIGNS.get(gpu["state"], "")
        if width == 1:
            height = look.UNMEASURED if share is None else look.height(share * 100)
            return [(sign or height, (style if sign else metric.style(share)) + chosen)]
        if not sign and share is not None:
            style = look.level_style(share, warms=metric.warms)
        number = metric.number(gpu)
        text = sign.rjust(width - 1) if sign or number is None else f"{min(99, round(number)):>{width - 1}}"
        return [(text if text.strip() else look.UNMEASURED.rjust(width - 1), style + chosen), (" ", "")]

    # ------------------------------------------------------------------ pieces

    def _curve(self, gpu: Row, width: int) -> list[Piece]:
        return [(look.curve(self._cluster.trend(gpu), width, 1)[0], "util")]

    def _meter(self, label: str, gpu: Row, width: int) -> list[Piece]:
        used = gpu["utilization_pct"]
        if label == UTIL:
            share, words, style = look.load_share(gpu), look.of(used, "%"), "util"
            alarm = self._cluster.is_wasted(gpu)
        else:
            share, words, style = look.memory_share(gpu), memory_in_use(gpu), "mem"
            alarm = look.is_full(share)
        figure = max(FIGURE, len(memory_in_use(gpu)) + 1)  # one width, so that both bars end alike
        return [
            (f"{label:{len(UTIL)}} ", "dim"),
            *look.bar(share, max(0, width - len(UTIL) - 1 - figure), style, alarm=alarm),
            (fitted(words, min(figure, max(0, width - len(UTIL) - 1)), right=True), ""),
        ]

    def _holder(self, gpu: Row, width: int) -> list[Piece]:
        """Who has it, with what, and how long still; or why it is not free."""
        tasks = self._cluster.holders(gpu)
        if gpu["state"] != "allocated" or not tasks:
            return [(fitted(look.who(gpu, self._cluster), width), "" if gpu["state"] != "unhealthy" else "bad")]
        if len(tasks) > 1 or gpu["idle_since"]:
            return [(fitted(look.who(gpu, self._cluster), width), "")]
        task = tasks[0]
        words, time_left = self._cluster.called(task), "paused" if task["state"] == "paused" else left(task)
        owner, _, _ = words.partition(" ")
        if cell_len(words) + 1 + len(time_left) > width:
            time_left = time_left.removeprefix("for ")
        when = f" {time_left}" if len(time_left) + 12 < width else ""
        words = fitted(words, width - len(when))
        return [(words[: len(owner)], "held"), (words[len(owner) :], ""), (when, "dim")]


def legend(metric: Metric, states: Collection[str], cell: int, width: int) -> list[Piece]:
    """What the colours and signs of a heat map mean: those of the states that there are, and fit."""
    pieces: list[Piece] = [(f"{metric.name} {metric.unit} ", "strong")]
    signs = [(f"{sign} ", state, look.style_of(state)) for state, sign in look.SIGNS.items() if state in states]
    scale = sum(len(f"  {sign}{state}") for sign, state, _ in signs) + len(pieces[0][0]) + 3 * 5
    for level in range(5) if scale <= width else (0, 4):  # the signs are a riddle without words, the scale is none
        if cell == 1:
            share = level / 5 + 0.1
            pieces += [(look.height(share * 100), metric.style(share)), (f"{level * 20} ", "dim")]
        else:
            pieces += [(f"{level * 20:>2}", look.level_style(level / 5 + 0.1, warms=metric.warms)), (" ", "")]
    left = width - sum(cell_len(text) for text, _ in pieces)
    keys = [("M ", "another number", "strong"), ("L ", "group by label", "strong")]
    for sign, words, style in (*signs, *keys):
        if len(sign) + len(words) + 2 <= left:
            pieces += [(f"  {sign}", style), (words, "dim")]
            left -= len(sign) + len(words) + 2
    return pieces


def grouped(nodes: Iterable[Row], label: str) -> Mapping[str, list[Row]]:
    """The nodes by the value of a label; those without it come last."""
    found: dict[str, list[Row]] = {}
    for node in sorted(nodes, key=lambda node: label not in node["labels"]):
        found.setdefault(str(node["labels"].get(label, "")), []).append(node)
    return found
