"""What is published in words, for tables and lines."""

from __future__ import annotations

import shlex
import time
from datetime import UTC, datetime
from typing import Any

from agentless.model.units import format_duration


def state(task: dict[str, Any]) -> str:
    """Its state, with an exit code that is not 0."""
    code = task["exit_code"]
    return str(task["state"]) + (f" ({code})" if code else "")


def words(task: dict[str, Any]) -> str:
    """Its command, as it would be typed."""
    return shlex.join(task["command"])


def where(task: dict[str, Any]) -> str:
    """Its place, like `node1::0,1`; what it asks for as long as it has none."""
    if task["state"] in ("scheduled", "pending") or task["node"] is None:
        return str(task["target"])
    return str(task["node"]) + ("::" + ",".join(map(str, task["gpus"])) if task["gpu_uuids"] else "")


def what(task: dict[str, Any]) -> str:
    """Its command, and why it is not simply running."""
    return words(task) + (f"  [{task['reason']}]" if task["reason"] else "")


def process_words(process: dict[str, Any]) -> str:
    """A process on a GPU: whose, which, and how much of the GPU it uses."""
    memory = "" if process["memory_mib"] is None else f", {process['memory_mib']} MiB"
    whose = f"{process['user']}'s process" if process["user"] else "process"
    return f"{whose} {process['pid']} ({process['command'] or process['name'] or 'unknown program'}{memory})"


def seconds(text: str) -> float:
    """Unix seconds of a published time."""
    return datetime.fromisoformat(text).timestamp()


def ran(task: dict[str, Any]) -> str:
    """How long it has run, or did; of one that waits how long it will, if that is known."""
    if coming := task["scheduled_for"] or task["expected_start"]:
        about = "about " if task["about"] else ""
        return f"in {about}{format_duration(seconds(coming) - time.time())}"
    began = task["started_at"]
    if began is None:
        return "-"
    ended = seconds(task["ended_at"]) if task["ended_at"] else time.time()
    return format_duration(ended - seconds(began))


def idle(gpu: dict[str, Any]) -> str:
    """For how long the task that holds it has not used it; empty when that is not reported."""
    since = gpu["idle_since"]
    return f" (idle for {format_duration(time.time() - seconds(since))})" if since else ""


def local(text: str | None) -> str | None:
    """A published time by the clock on the wall."""
    return (
        None if text is None else datetime.fromtimestamp(seconds(text), UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    )


def printable(text: str) -> str:
    """The text without control characters: what others chose, like a command, must not steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def or_dash(value: object, unit: str = "") -> str:
    """The value with its unit, `-` when it is not known."""
    return "-" if value is None else f"{value}{unit}"
