"""The look of states and numbers: each state has a colour, and a sign that is readable without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentless.client.words import command_line, gpu_reason, gpu_state, idle
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.widgets.lines import Piece

STATES = {
    "running": "good", "completed": "good", "free": "good", "online": "good",
    "assigning": "warn", "paused": "warn", "pending": "warn", "blocked": "warn", "scheduled": "warn",
    "degraded": "warn", "stopped": "warn", "drained": "warn", "preempted": "warn", "incomplete": "warn",
    "stopping": "warn",
    "lost": "bad", "failed": "bad", "killed": "bad", "killed_oom": "bad", "timeout": "bad",
    "offline": "bad", "unhealthy": "bad", "unknown": "bad", "foreign": "odd", "allocated": "held",
    "cancelled": "dim", "excluded": "dim", "reserved": "dim", "partitioned": "dim",
}  # fmt: skip
"""The style of each state."""
SIGNS = {
    "free": "·", "foreign": "F", "unhealthy": "!", "unknown": "?", "drained": "d", "excluded": "x", "reserved": "r",
    "partitioned": "/",
}  # fmt: skip
"""The signs of GPUs without a task; one with a task shows the height of its utilisation."""
UNMEASURED = "T"
"""The sign of a GPU that a task has and whose utilisation is unknown."""

HOT = 85
"""Degrees Celsius from which on a GPU is shown as hot: most slow down a little above."""

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def style_of(state: str) -> str:
    return STATES.get(state, "")


def bar(share: float | None, width: int, style: str) -> list[Piece]:
    """A line of `width` columns, thick up to a share from 0 to 1; dots if it is unknown."""
    if share is None:
        return [("·" * width, "dim")]
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return [(filled, style), ("─" * (width - len(filled)), "dim")]


def height(percent: float | None) -> str:
    """A column as high as a percentage."""
    return "?" if percent is None else _EIGHTHS[max(1, min(8, round(percent / 12.5)))]


def spark(values: Iterable[float | None], width: int) -> str:
    """The last values as columns, the newest at the right; a gap where a value is unknown."""
    last = list(values)[-width:] if width > 0 else []
    return "".join(" " if value is None else height(value) for value in last).rjust(width)


def state_of(gpu: Row, cluster: ClusterState) -> Piece:
    """The state of a GPU and its style; with a question mark if the node does not answer."""
    silent = cluster.is_silent(gpu["node"])
    return (f"{gpu['state']}?", "dim") if silent else (gpu_state(gpu), style_of(gpu["state"]))


def who(gpu: Row, tasks: Sequence[Row]) -> str:
    """Who uses a GPU, or why it is not available; `tasks` are those that hold it."""
    if tasks and gpu["state"] == "allocated":
        return "; ".join(f"{task['owner']}  {task['name'] or command_line(task)}" for task in tasks) + idle(gpu)
    return "; ".join(filter(None, (gpu_reason(gpu), gpu["reserved"])))


def sign(gpu: Row, *, silent: bool) -> str:
    """A column for a GPU; `silent`: its node does not answer, and its state is unknown."""
    if silent:
        return SIGNS["unknown"]
    usage = gpu["utilization_pct"]
    return SIGNS.get(gpu["state"]) or (UNMEASURED if usage is None else height(usage))


def gib(mib: float | None) -> str:
    """Memory in MiB, as short as a tile needs it: `61G`."""
    return "-" if mib is None else f"{mib / 1024:.0f}G"


def in_gib(used: float | None, total: float | None) -> str:
    """How much of memory or of a disk is in use: `96/504G`; the total if that is unknown."""
    return gib(total) if used is None or total is None else f"{used / 1024:.0f}/{gib(total)}"


def memory(gpu: Row) -> str:
    """How much of the memory of a GPU is in use, as short as a tile needs it: `61.2/80G`."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    return "-" if used is None or total is None else f"{used / 1024:.1f}/{gib(total)}"


def memory_share(gpu: Row) -> float | None:
    """The share of its memory that is in use, from 0 to 1."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    return None if used is None or not total else used / total


def of(value: object, unit: str) -> str:
    """The value with its unit, `-` if it is unknown."""
    return "-" if value is None else f"{value:.0f}{unit}" if isinstance(value, float) else f"{value}{unit}"


def plot(values: Sequence[float | None], width: int, rows: int, top: float) -> list[str]:
    """A curve from 0 to `top`, two dots a column and four a row, as lines from the top; gaps stay empty."""
    dots = [[0] * width for _ in range(rows)]
    bits = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))  # the dots of a Braille pattern, from below
    for x, value in enumerate(_spread(values, width * 2)):
        if value is not None and top > 0:
            level = round(max(0.0, min(1.0, value / top)) * (rows * 4 - 1))
            for below in range(level + 1):
                dots[rows - 1 - below // 4][x // 2] |= bits[below % 4][x % 2]
    return ["".join(chr(0x2800 + dot) for dot in line) for line in dots]


def _spread(values: Sequence[float | None], count: int) -> list[float | None]:
    """The values as `count` means."""
    found: list[float | None] = []
    for at in range(count):
        first = at * len(values) // count
        part = [value for value in values[first : max(first + 1, (at + 1) * len(values) // count)] if value is not None]
        found.append(sum(part) / len(part) if part else None)
    return found
