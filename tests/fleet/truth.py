"""What must be true whatever breaks: what agentless says against what really happened on the nodes. Pure functions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any

from agentless.demo.engine.container import Run
from tests.fleet.world import Truth

EXACT = 1.0
"""Seconds by which a published time may differ from the true one."""

CLOCK_KNOWN_AFTER = 60.0
"""Seconds after a jump until which the controller may not have noticed it: it reads the clock at each full look."""

_LIVE = frozenset({"assigning", "running", "paused", "lost"})
_STATE = {"created": "assigning", "running": "running", "paused": "paused"}
_BY_HAND = 1.0
"""Seconds within which nobody can know of a container that somebody starts by hand."""

_WALL = time.time() - time.monotonic()

View = Mapping[str, Any]
"""A task as it is published."""


def doubles(containers: Iterable[Truth]) -> Iterator[str]:
    """GPUs that two containers held at once, and tasks that were started twice; not counting what was done by hand."""
    held: dict[str, list[tuple[Run, Truth, bool]]] = defaultdict(list)
    starts: dict[str, int] = defaultdict(int)
    for container in containers:
        starts[container.task] += len(container.runs) - len(container.by_hand)
        for number, run in enumerate(container.runs):
            for gpu in container.gpus:
                held[gpu].append((run, container, number in container.by_hand))
    for gpu, runs in held.items():
        holder, until = "", -inf
        for run, container, by_hand in sorted(runs, key=lambda entry: entry[0].began + _BY_HAND * entry[2]):
            if run.began < until and not by_hand:
                yield f"{gpu} was given to {container.task} while {holder} held it"
            end = inf if run.ended is None else run.ended
            if end > until:
                holder, until = container.task, end
    for task, times in starts.items():
        if times > 1:
            yield f"{task} was started {times} times"


def untrue(
    tasks: Sequence[View], containers: Iterable[Truth], accepted: Collection[str], jumps: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """What one person's controller says wrong of their own tasks. `accepted`: ids that it has to know."""
    mine = {task["id"]: task for task in tasks if task["mine"]}
    found: dict[str, list[Truth]] = defaultdict(list)
    for container in containers:
        found[container.task].append(container)
        if container.task not in mine and not container.gone:
            yield f"{container.task} has a container ({container.state}) and is no task"
    for task in accepted:
        if task not in mine:
            yield f"{task} was accepted and is unknown"
    for task, view in mine.items():
        started = [container for container in found[task] if container.runs]
        for problem in _wrong(view, (started or found[task] or [None])[-1], jumps[view["node"]]):
            yield f"{task}: {problem}; it says {_words(view)}"


def unkept(promised: Iterable[str], containers: Iterable[Truth]) -> Iterator[str]:
    """Tasks that somebody was told run, and that never did; of all that ever were, whatever became of them."""
    ran = {container.task for container in containers if container.runs}
    yield from (f"{task} was accepted and never ran" for task in sorted(set(promised) - ran))


def idle(tasks: Sequence[View], gpus: Sequence[View]) -> Iterator[str]:
    """Who is the first in the queue, and waits although everything that it wants is free."""
    free = {(gpu["node"], gpu["index"]) for gpu in gpus if gpu["state"] == "free"}
    for task in tasks:
        wanted = {(task["node"], index) for index in task["gpus"]}
        if task["position"] == 1 and wanted <= free:
            yield f"{task['id']} waits for {task['target']}, which is free: {task['reason']}"


def unseen(tasks: Sequence[View], containers: Iterable[Truth]) -> Iterator[str]:
    """Live tasks of others that a person's `ps` does not show as they are."""
    shown = {task["id"]: task["state"] for task in tasks if not task["mine"]}
    for container in containers:
        if container.live and shown.get(container.task) != _STATE[container.state]:
            yield f"{container.task} of {container.owner} is {container.state}, shown as {shown.get(container.task)}"


def misheld(gpus: Sequence[View], containers: Iterable[Truth]) -> Iterator[str]:
    """GPUs whose holder a person's `gpus` does not show, or that nobody holds and that are not free."""
    holders: dict[str, set[str]] = defaultdict(set)
    for container in containers:
        for gpu in container.gpus if not container.gone and container.state in _STATE else ():
            holders[gpu].add(container.task)
    for gpu in gpus:
        held = holders[gpu["uuid"]]
        if gpu["task"] not in (held or {None}):
            yield f"{gpu['node']}::{gpu['index']} is held by {held}, shown as {gpu['task']}"
        elif not held and gpu["state"] != "free":
            yield f"{gpu['node']}::{gpu['index']} is held by nobody, and {gpu['state']}: {gpu['reason']}"


def unready(nodes: Iterable[View]) -> Iterator[str]:
    """Nodes that do not serve."""
    yield from (f"{node['name']} is {node['state']}: {node['reason']}" for node in nodes if node["state"] != "online")


def untold(view: View, events: Sequence[View]) -> Iterator[str]:
    """What the events of a task that has ended leave out."""
    last = events[-1]["task"] if events else {}
    if (last.get("state"), last.get("exit_code")) != (view["state"], view["exit_code"]):
        yield f"{view['id']}: its events end with {last}; it says {_words(view)}"
    yield from (f"{view['id']}: {event['event']} has no cause" for event in events if not event["cause"])


def _wrong(view: View, container: Truth | None, jumps: Sequence[float]) -> Iterator[str]:
    state, created, began, ended = (
        view["state"],
        *map(_seconds, (view["created_at"], view["started_at"], view["ended_at"])),
    )
    now = time.time()
    dates = [moment for moment in (created, began, ended) if moment is not None]
    if dates != sorted(dates) or dates[-1] > now + 0.01:
        yield f"its times are out of order or in the future ({now:.3f})"
    if container is None:
        if state in _LIVE or view["exit_code"] is not None:
            yield "it never had a container"
        elif not view["reason"]:
            yield "it never had a container, and nobody says why"
        return
    if state in ("completed", "failed") and (state == "completed") != (view["exit_code"] == 0):
        yield "its exit code is another word"
    if container.gone:
        if state in _LIVE:
            yield "its container is gone"
        if view["exit_code"] is None:
            return
    elif container.state in _STATE:
        if state != _STATE[container.state]:
            yield f"its container is {container.state}"
        elif view["reason"] in ("stopping", "killing"):
            yield "its stop was forgotten"
    elif state in _LIVE:
        yield f"its container is {container.state}"
    if container.runs and (state not in _LIVE or began is not None):
        # Somebody may have started it again so shortly that nobody saw it: either run is true.
        runs = container.runs if container.by_hand else container.runs[-1:]
        wrong = [list(_misdated(view, began, ended, run, jumps)) for run in reversed(runs)]
        if all(wrong):
            yield from wrong[0]


def _misdated(view: View, began: float | None, ended: float | None, run: Run, jumps: Sequence[float]) -> Iterator[str]:
    if run.exit_code != view["exit_code"]:
        yield f"its container ended with {run.exit_code}"
    if began is None:
        yield "its start is not known"
        return
    last = time.monotonic() if run.ended is None else run.ended
    if not any(run.began - CLOCK_KNOWN_AFTER < jump for jump in jumps) and abs(began - _WALL - run.began) > EXACT:
        yield f"it began at {run.began + _WALL:.3f}, not at {began:.3f}"
    if ended is None or run.ended is None or any(run.began <= jump <= last for jump in jumps):
        return
    if abs((ended - began) - (run.ended - run.began)) > EXACT:
        yield f"it ran for {run.ended - run.began:.3f} s, not for {ended - began:.3f}"


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _words(view: View) -> str:
    keys = ("state", "exit_code", "reason", "node", "created_at", "started_at", "ended_at", "container")
    return ", ".join(f"{key}={view[key]}" for key in keys)
