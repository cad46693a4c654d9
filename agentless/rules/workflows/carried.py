"""A workflow in the labels of what it starts, so that `recover` can go on with what had not started.

The value stands in the signed label of the spec, as `Job.packed`: all jobs as JSON, compressed, and behind a blank the
numbers of those that had begun by then.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from agentless.errors import UsageError
from agentless.model.tasks.spec import TaskSpec, check_spec
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try, is_task_id

LONGEST = 64 * 1024
"""The limit of the value: it is a part of one label. A larger workflow is not carried."""
MAX_BYTES = 32 << 20
MAX_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Carried:
    """All jobs of a workflow by the ids of their first tries, those that had begun, and the text of its file."""

    jobs: Mapping[str, TaskSpec]
    begun: frozenset[str] = frozenset()
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Packed:
    jobs: dict[str, TaskSpec]
    text: str = field(default="")


_PACKED = TypeAdapter(_Packed)


def pack(tasks: Iterable[Task], text: str) -> str:
    """The jobs of a workflow; empty if that is too much for a label."""
    jobs = {first_try(task.id): task.spec for task in tasks}
    content = _PACKED.dump_json(_Packed(jobs, text), exclude_defaults=True)
    packed = base64.b85encode(zlib.compress(content, 9)).decode()
    return packed if len(packed) <= LONGEST else ""


def with_begun(packed: str, ids: Iterable[str], begun: Iterable[str]) -> str:
    """The value for a label: the jobs, and which of these ids have begun."""
    numbers = {task_id: number for number, task_id in enumerate(sorted(ids))}
    return f"{packed} {','.join(f'{numbers[each]:x}' for each in sorted(begun) if each in numbers)}"


def unpack(value: str) -> Carried | None:
    """What a label carries; None for anything else. Labels are untrusted."""
    packed, _, numbers = value.partition(" ")
    if len(packed) > LONGEST:
        return None
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.b85decode(packed), MAX_BYTES)
        found = _PACKED.validate_json(content)
        ids = sorted(found.jobs)
        if len(ids) > MAX_JOBS or not all(map(is_task_id, ids)):
            return None
        for spec in found.jobs.values():
            check_spec(spec)
        begun = frozenset(ids[int(number, 16)] for number in numbers.split(",") if number)
    except (ValueError, zlib.error, binascii.Error, ValidationError, UsageError, IndexError):
        return None
    return Carried(found.jobs, begun, found.text)


def joined(values: Iterable[str]) -> Carried | None:
    """What several containers of one workflow carry: all agree on the jobs, and the later ones know more that began."""
    found = [carried for value in values if (carried := unpack(value))]
    if not found:
        return None
    most = max(found, key=lambda each: len(each.begun))
    return replace(most, begun=frozenset().union(*(each.begun for each in found)))


def left(carried: Carried, workflow: str, known: Iterable[str]) -> dict[str, TaskSpec]:
    """The jobs that go on: those of this workflow that had not begun, and of which nothing is known."""
    gone = carried.begun | frozenset(known)
    return {
        task_id: spec
        for task_id, spec in sorted(carried.jobs.items())
        if task_id not in gone and spec.job is not None and spec.job.workflow == workflow
    }
