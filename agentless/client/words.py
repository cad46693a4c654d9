"""What is published in words, for tables and lines."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from agentless.model.units import counted, format_duration, format_indices


def state(task: dict[str, Any]) -> str:
    """Its state, with an exit code that is not 0."""
    code = task["exit_code"]
    return str(task["state"]) + (f" ({code})" if code else "")


def words(task: dict[str, Any]) -> str:
    """Its command, as it would be typed."""
    return shlex.join(task["command"])


def variables(spec: dict[str, Any]) -> list[str]:
    """The variables that it was given, as they would be typed; of a secret one the name."""
    plain = [f"{name}={shlex.quote(value)}" for name, value in spec["env"].items()]
    return [*plain, *(f"{name} (secret)" for name in spec["secret_env"])]


def where(task: dict[str, Any]) -> str:
    """Its place, like `node1::0,1`; what it asks for if it has none, or never had one."""
    if task["node"] is None or (task["state"] in ("scheduled", "pending", "cancelled") and not task["gpu_uuids"]):
        return short(task["target"])
    return place(task["node"], task["gpus"] if task["gpu_uuids"] else ())


def place(node: str, gpus: Sequence[int]) -> str:
    """GPUs of a node, as short as they can be typed: `node1::0,1`, `node1::0-3,6`."""
    return short(f"{node}::{','.join(map(str, gpus))}" if gpus else node)


def short(target: str) -> str:
    """The target with ranges where more than two of its GPUs follow each other."""
    return re.sub(r"(?<=::)[0-9,]+", lambda listed: format_indices(map(int, listed[0].split(","))), target)


def ssh_sessions(sessions: dict[str, Any]) -> str:
    """How much of a node's SSH server is in use, and what it allows, as far as is known."""
    number, used = sessions["connections"], sessions["used"]
    text = f"{counted(number, 'connection')}, {counted(used, 'session')} in use"
    if sessions["total"] is None:
        return text
    return f"{text} of {sessions['total']}; MaxSessions is {sessions['each']} there"


def why(task: dict[str, Any]) -> str:
    """Why it is not simply running; empty when it is."""
    return task["reason"] or ""


def ending(task: dict[str, Any]) -> str | None:
    """How it ended, in a line with its reason; None for the good end."""
    if task["state"] == "completed":
        return None
    limit = f"its time limit is {format_duration(task['time_limit'])}" if task["state"] == "timeout" else None
    reason = task["reason"] or limit
    return f"{task['id']}  {state(task)}" + (f": {reason}" if reason else "")


def process_words(process: dict[str, Any]) -> str:
    """A process on a GPU: whose, which, and how much of the GPU it uses."""
    memory = "" if process["memory_mib"] is None else f", {process['memory_mib']} MiB"
    whose = f"{process['user']}'s process" if process["user"] else "process"
    return f"{whose} {process['pid']} ({process['command'] or process['name'] or 'unknown program'}{memory})"


def seconds(text: str) -> float:
    """Unix seconds of a published time."""
    return datetime.fromisoformat(text).timestamp()


def starts(task: dict[str, Any]) -> str | None:
    """In how long it starts, or after how long it goes into the queue; None if that is not known, or over."""
    word = "after" if task["scheduled_for"] else "in about" if task["about"] else "in"
    coming = task["scheduled_for"] or task["expected_start"]
    return coming and f"{word} {format_duration(seconds(coming) - time.time())}"


def ran(task: dict[str, Any]) -> str:
    """How long it has run, or did; of one that waits how long it will, if that is known."""
    if coming := starts(task):
        return coming
    began = task["started_at"]
    if began is None:
        return "-"
    ended = seconds(task["ended_at"]) if task["ended_at"] else time.time()
    return format_duration(ended - seconds(began))


def idle(gpu: dict[str, Any]) -> str:
    """For how long the task that holds it has not used it; empty when that is not reported."""
    since = gpu["idle_since"]
    return f" (idle for {format_duration(time.time() - seconds(since))})" if since else ""


def _here(text: str) -> datetime:
    return datetime.fromtimestamp(seconds(text), UTC).astimezone()


def local(text: str | None) -> str | None:
    """A published time by the clock on the wall."""
    return None if text is None else _here(text).strftime("%Y-%m-%d %H:%M:%S")


def date(text: str) -> str:
    """The same for a table: `11-22 08:00`, with its year in front if that is not this one."""
    then = _here(text)
    this_year = then.year == datetime.fromtimestamp(time.time(), UTC).astimezone().year
    return then.strftime("%m-%d %H:%M" if this_year else "%Y-%m-%d %H:%M")


def gib(mib: float | None) -> str:
    """Memory that is published in MiB: `61G`, `-` when it is not known."""
    return "-" if mib is None else f"{mib / 1024:.0f}G"


def memory_in_use(gpu: dict[str, Any]) -> str:
    """How much of the memory of a GPU is in use: `61.2/80G`."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    return "-" if used is None or total is None else f"{used / 1024:.1f}/{gib(total)}"


def or_dash(value: object, unit: str = "") -> str:
    """The value with its unit, `-` when it is not known."""
    return "-" if value is None else f"{value}{unit}"
