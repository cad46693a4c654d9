"""The look of states and numbers: each state has a colour, and a sign that is readable without it."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.plot import Series, dotted, spread
from agentless.client.words import cause_of, gpu_reason, gpu_state, idle, reserved
from agentless.tui.data.cluster import ClusterState, Row, is_bad
from agentless.tui.widgets.lines import Piece

STATES = {
    "running": "good", "completed": "good", "free": "good", "online": "good",
    "assigning": "warn", "paused": "warn", "pending": "warn", "blocked": "warn", "scheduled": "warn",
    "degraded": "warn", "stopped": "warn", "drained": "warn", "preempted": "warn", "incomplete": "warn",
    "stopping": "warn", "submitted": "warn",
    "lost": "bad", "failed": "bad", "killed": "bad", "killed_oom": "bad", "timeout": "bad",
    "offline": "bad", "unhealthy": "bad", "unknown": "bad", "foreign": "odd", "allocated": "held",
    "cancelled": "dim", "excluded": "dim", "reserved": "dim", "partitioned": "dim",
}  # fmt: skip
"""The style of each state."""
SIGNS = {
    "free": "·", "foreign": "F", "unhealthy": "!", "unknown": "?", "drained": "d", "excluded": "x", "reserved": "r",
    "partitioned": "/", "task": "T",
}  # fmt: skip
"""The signs of GPUs without a task; one with a task shows the height of its utilisation, `task` if it is unknown."""
UNMEASURED = SIGNS["task"]
"""The sign of a GPU that a task has and whose utilisation is unknown."""

WARM = 70
"""Degrees Celsius from which on a GPU is shown as warm."""
HOT = 85
"""Degrees Celsius from which on a GPU is shown as hot: most slow down a little above."""

FULL = 0.95
"""The share of a memory from which on it is shown as full."""

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def style_of(state: str) -> str:
    return STATES.get(state, "")


def style_of_name(node: Row) -> str:
    """The style of the name of a node or cluster: that of its state if something is wrong."""
    return style_of(node["state"]) if is_bad(node) else "strong"


def bar(share: float | None, width: int, style: str, *, thin: bool = False, alarm: bool = False) -> list[Piece]:
    """A bar of `width` columns, solid up to a share from 0 to 1; dots if it is unknown.

    A `thin` one is for what matters less than the GPUs beside it. An `alarm` has another color, and a sign at its end.
    """
    if share is None:
        return [("·" * width, "dim")]
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    whole, half, rest = "━╸─" if thin else "█▌░"
    filled = whole * (halves // 2) + half * (halves % 2)
    if alarm and width > 1:
        filled = filled[: width - 1]
        return [(filled, "warn"), (rest * (width - 1 - len(filled)), "track"), ("!", "warn")]
    return [(filled, style), (rest * (width - len(filled)), "track")]


def is_full(share: float | None) -> bool:
    """Whether so little memory is left that what needs more may fail."""
    return share is not None and share >= FULL


def height(percent: float | None) -> str:
    """A column as high as a percentage."""
    return "?" if percent is None else _EIGHTHS[max(1, min(8, round(percent / 12.5)))]


def spark(values: Sequence[float | None], width: int) -> str:
    """The values as so many columns, each of them a mean; a gap where none is known."""
    return "".join(" " if value is None else height(value) for value in spread(values, width))


def state_of(gpu: Row, cluster: ClusterState) -> Piece:
    """The state of a GPU and its style; with a question mark if the node does not answer."""
    if gpu["state"] != "unknown" and cluster.is_silent(gpu["node"]):
        return f"{gpu['state']}?", "dim"
    return gpu_state(gpu), style_of(gpu["state"])


def who(gpu: Row, cluster: ClusterState) -> str:
    """Who uses a GPU, or why it is not available."""
    if gpu["state"] == "allocated" and (tasks := cluster.holders(gpu)):
        return "; ".join(map(cluster.called, tasks)) + idle(gpu)
    return "; ".join(filter(None, (cause_of(gpu["node"], gpu_reason(gpu)), reserved(gpu))))


def free_words(node: Row, cluster: ClusterState) -> str:
    """How many GPUs of a node are free, of how many: `3/8`."""
    return f"{node['gpus_free'] - cluster.reserved[node['name']]}/{node['gpus']}"


def sign(gpu: Row, *, silent: bool) -> str:
    """A column for a GPU; `silent`: its node does not answer, and its state is unknown."""
    if silent:
        return SIGNS["unknown"]
    usage = gpu["utilization_pct"]
    return SIGNS.get(gpu["state"]) or (UNMEASURED if usage is None else height(usage))


def kilowatts(used: float, most: float) -> str:
    """Power in watts: `1.2/4.5 kW`."""
    return f"{used / 1000:.1f}/{most / 1000:.1f} kW"


def load_share(gpu: Row) -> float | None:
    """Its utilization, from 0 to 1."""
    used: float | None = gpu["utilization_pct"]
    return None if used is None else used / 100


def memory_share(gpu: Row) -> float | None:
    """The share of its memory that is in use, from 0 to 1."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    return None if used is None or not total else used / total


def power_share(gpu: Row) -> float | None:
    """The share of its power limit that it draws."""
    power, limit = gpu["power_w"], gpu["power_limit_w"]
    return None if power is None or not limit else power / limit


def heat_of(gpu: Row) -> str:
    """The style of a temperature."""
    degrees = gpu["temperature_c"] or 0
    return "bad" if degrees >= HOT else "warm" if degrees >= WARM else "" if degrees >= WARM - 25 else "cool"


def power_style(gpu: Row) -> str:
    """The style of a power draw: a GPU at its limit may be slowed down."""
    share = power_share(gpu)
    return "cool" if share is None or share < 0.4 else "" if share < 0.95 else "warm"


def level_style(share: float, *, warms: bool) -> str:
    """The style of a cell of a heat map for a share from 0 to 1; `warms`: much of it is too much."""
    level = max(0, min(4, int(share * 5)))
    return f"{'heat' if warms else 'use'}{level}"


def of(value: object, unit: str) -> str:
    """The value with its unit, `-` if it is unknown."""
    return "-" if value is None else f"{value:.0f}{unit}" if isinstance(value, float) else f"{value}{unit}"


def curve(values: Sequence[float | None], width: int, rows: int) -> list[str]:
    """Percentages as a filled curve, two a column, as lines from the top; gaps stay empty."""
    lines = dotted([Series("", values, "curve")], width, rows, 100.0, filled=True)
    return ["".join(text for text, _ in line) for line in lines]
