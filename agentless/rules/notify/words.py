"""What a message says, in words."""

from __future__ import annotations

from collections.abc import Mapping

from agentless.model.nodes.device import GpuNumber
from agentless.model.nodes.node import all_named
from agentless.model.notify import Digest, Notice
from agentless.model.units import format_duration

LINES = 10
"""The most tasks that one message lists."""
_STATES: Mapping[str, str] = {
    "running": "started",
    "killed_oom": "ran out of memory",
    "timeout": "reached the time limit",
    "stopped": "was stopped",
    "killed": "was killed",
    "cancelled": "was cancelled",
    "preempted": "was preempted",
    "lost": "is lost",
    "test": "message: notifications work",
}
"""What happened to a task, by its state; of the other states, the name itself is right."""
_COUNTED: Mapping[str, str] = {"running": "started", "killed_oom": "out of memory", "timeout": "timed out"}


def title(digest: Digest) -> str:
    """What has happened, in one line."""
    if digest.count == 1:
        return _sentence(digest.notices[0])
    states = ", ".join(f"{count:,} {_COUNTED.get(state, state)}" for state, count in digest.states.items())
    whose = f"Batch {_called(digest.batch, digest.name)}" if digest.batch else digest.name or "Tasks"
    return f"{whose}: {states}"


def text(digest: Digest) -> str:
    """The message without its title: a line for each of the first tasks; empty if the title says everything."""
    shown = digest.notices[:LINES]
    if digest.count == 1:
        return shown[0].reason or ""
    lines = [f"{_sentence(notice)}{f': {notice.reason}' if notice.reason else ''}" for notice in shown]
    more = digest.count - len(shown)
    return "\n".join([*lines, *([f"and {more:,} more"] if more else [])])


def _sentence(notice: Notice) -> str:
    """`2mxf (train) failed with exit code 1 on node1::0 after 3h 12m`."""
    words = [_called(notice.task, notice.name), _STATES.get(notice.state, notice.state)]
    if notice.state == "failed" and notice.exit_code is not None:
        words.append(f"with exit code {notice.exit_code}")
    if notice.nodes:
        words.append(f"on {len(notice.nodes)} nodes ({all_named(notice.nodes)})")
    elif notice.node:
        words.append(f"on {_place(notice.node, notice.gpus)}")
    if notice.started_at is not None and notice.ended_at is not None:
        words.append(f"after {format_duration(notice.ended_at - notice.started_at)}")
    return " ".join(words)


def _called(task: str | None, name: str | None) -> str:
    return f"{task} ({name})" if name else f"{task}"


def _place(node: str, gpus: tuple[GpuNumber, ...]) -> str:
    return node + ("::" + ",".join(map(str, gpus)) if gpus else "")
