"""What jobs wait for: references to other jobs, and an order without cycles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agentless.errors import UsageError
from agentless.model.text import enumerated
from agentless.rules.views.nearest import nearest
from agentless.rules.workflows.others import STATES
from agentless.rules.workflows.workflow import ENDS, job_title

MAX_REQUIRED = 1000
"""The most tasks that one task may wait for: they stand in a label of its container."""
MAX_EDGES = 100_000
"""The most pairs of a task and one that it waits for."""

_REFERENCE = re.compile(r"([^\[\]]+)(?:\[(.*)\])?", re.DOTALL)


class Node(NamedTuple):
    """A task of the graph: its job, and the values by which it differs from others of it."""

    job: str
    parameters: Mapping[str, str]


class Reference(NamedTuple):
    """A job that is required, the values that it must have, and the state in which it has to end.

    `each`: all of its tasks have to end so. Otherwise all have to end, and one of them so.
    """

    job: str
    values: Mapping[str, str]
    state: str
    each: bool = True


def parse_reference(text: str, state: str | None = None) -> Reference:
    """`train`, or `train[lr=0.1]`, which has to end in this state. Raises UsageError."""
    found = _REFERENCE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{text[:60]!r}: use the name of a job, like train or 'train[lr=0.1]'")
    values = dict[str, str]()
    for pair in found[2].split(",") if found[2] else ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{text[:60]!r}: use KEY=VALUE in the brackets, like 'train[lr=0.1]'")
        values[key.strip()] = value.strip()
    meant = STATES.get((state or "completed").lower())
    if meant is None:
        raise UsageError(f"{(state or '')[:60]!r} is no state; use {enumerated(ENDS, 'or')}")
    return Reference(found[1].strip(), values, *meant)


class Tasks:
    """The tasks of all jobs, found by what is said of them. `jobs` has also those without any."""

    def __init__(self, nodes: Sequence[Node], jobs: Iterable[str]) -> None:
        self._nodes = nodes
        self._by_job: dict[str, list[int]] = {job: [] for job in jobs}
        self._by_values: dict[tuple[str, ...], dict[tuple[str, ...], list[int]]] = {}
        for number, node in enumerate(nodes):
            self._by_job[node.job].append(number)

    def meant(self, reference: Reference) -> list[int]:
        """The numbers of the tasks that are meant; none for a job that has none. Raises UsageError."""
        job, values = reference.job, reference.values
        if job not in self._by_job:
            raise UsageError(f"there is no job {job[:60]!r}{nearest(job, self._by_job)}")
        if not self._by_job[job]:
            return []
        keys = sorted(values)
        found = self._with(job, keys).get(tuple(values[key] for key in keys))
        if not found:
            raise UsageError(f"no task of {job} has {job_title('', values)}")
        if len(found) > MAX_REQUIRED:
            raise UsageError(
                f"{job} has {len(found):,} tasks; a job can wait for {MAX_REQUIRED:,}; let jobs in between gather them"
            )
        return found

    def _with(self, job: str, keys: Sequence[str]) -> Mapping[tuple[str, ...], list[int]]:
        """The tasks of a job that have these keys, by their values: each of many jobs may ask."""
        if (job, *keys) not in self._by_values:
            found = self._by_values[job, *keys] = {}
            for number in self._by_job[job]:
                has = self._nodes[number].parameters
                if all(key in has for key in keys):
                    found.setdefault(tuple(has[key] for key in keys), []).append(number)
        return self._by_values[job, *keys]


def ordered(edges: Sequence[Iterable[int]]) -> list[int]:
    """The numbers, each behind those that it waits for, else in their own order; without those in or behind a cycle."""
    left = [len(set(before)) for before in edges]
    after: list[list[int]] = [[] for _ in edges]
    for number, before in enumerate(edges):
        for each in set(before):
            after[each].append(number)
    ready = [number for number, count in enumerate(left) if not count]
    found = []
    while ready:
        later = []
        for number in ready:
            found.append(number)
            for each in after[number]:
                left[each] -= 1
                if not left[each]:
                    later.append(each)
        ready = sorted(later)
    return found


def cycle(edges: Sequence[Iterable[int]]) -> list[int]:
    """A cycle, each number behind the one that waits for it; empty if there is none."""
    outside = set(ordered(edges))
    start = next((number for number in range(len(edges)) if number not in outside), None)
    if start is None:
        return []
    path, at = dict[int, None](), start
    while at not in path:  # each of those left waits for another one of them
        path[at] = None
        at = next(each for each in edges[at] if each not in outside)
    numbers = list(path)
    return numbers[numbers.index(at) :]
