"""A workflow in the labels of the containers that it starts: written at a launch, read by `recover`.

`agentless.workflow.jobs` has all jobs, and the text of the file: the same value on all containers of a workflow.
`agentless.workflow` says what that was like at the launch: which jobs had begun, and how they had ended. It is
`1:SIGNATURE:BODY`; the signature covers the body, the node, and the task with its spec. The body has a digest of the
jobs, so the signature covers them, too.

Anybody who may use an engine can write labels, so everything here is bounded, and nothing is believed without its
signature.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from agentless.errors import UsageError
from agentless.model.containers.claim import SPEC, TASK
from agentless.model.tasks.job import JOB_NAME
from agentless.model.tasks.spec import MAX_SPEC, TaskSpec, check_spec
from agentless.model.tasks.task_id import is_task_id

HEAD = "agentless.workflow"
JOBS = "agentless.workflow.jobs"
MAX_HEAD = 8192
MAX_JOBS = 64 << 10
"""The limits of the two labels, in characters. The head of 10,000 jobs has at most 6,000.

Linux limits an argument of `docker create` to 128 KiB.
"""
MOST_CARRIED = 6 << 20
"""Bytes of a node's answer about either label: no more are read."""
MAX_BYTES = 2 << 20
"""The limit of the jobs before they are compressed, and after they are unpacked."""
MAX_COUNT = 10_000
"""The most jobs: as many as a workflow may have."""

WAITING, BEGUN, COMPLETED, FAILED, OTHER = ".", "b", "c", "f", "o"
"""What a head says of each job, one letter each: not begun; begun; or how it has ended."""

_VERSION = "1"
_SPEC = TypeAdapter(TaskSpec)


@dataclass(frozen=True, slots=True)
class Head:
    """A workflow at the launch of one of its jobs, which was `at` this time (Unix seconds, controller's clock).

    `states` has a letter for each job, in the order of their ids. `jobs` is the digest of the other label. `stops` is
    how many stops the controller had recorded.
    """

    workflow: Annotated[str, Field(max_length=40)]
    name: Annotated[str, Field(max_length=80)]
    owner: Annotated[str, Field(max_length=200)]
    controller: Annotated[str, Field(max_length=80)]
    at: Annotated[float, Field(ge=0, lt=1e11)]
    states: Annotated[str, Field(max_length=MAX_COUNT, pattern=r"^[.bcfo]*$")]
    jobs: Annotated[str, Field(max_length=64)]
    stops: Annotated[int, Field(ge=0, lt=2**40)] = 0


_HEAD = TypeAdapter(Head)


@dataclass(frozen=True, slots=True)
class Carried:
    """All jobs of a workflow by the ids of their first tries, in that order, and the text of its file."""

    jobs: Mapping[str, TaskSpec]
    text: str = ""


# ---------------------------------------------------------------------- the jobs


def pack(carried: Carried) -> str:
    """The label of the jobs; empty if that is too much for a label."""
    lines = [orjson.dumps(carried.text)]
    lines += [
        key.encode() + b" " + _SPEC.dump_json(_lasting(spec), exclude_defaults=True)
        for key, spec in sorted(carried.jobs.items())
    ]
    content = b"\n".join(lines)
    if len(content) > MAX_BYTES or len(carried.jobs) > MAX_COUNT:
        return ""
    packed = base64.b85encode(zlib.compress(content, 9)).decode()
    return packed if len(packed) <= MAX_JOBS else ""


def unpack(label: str) -> Carried | None:
    """The jobs in a label, each checked like one of a submit; None for anything else."""
    if not label or len(label) > MAX_JOBS:
        return None
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.b85decode(label), MAX_BYTES + 1)
        if len(content) > MAX_BYTES or not reader.eof:
            return None
        text, *lines = content.split(b"\n", MAX_COUNT + 1)
        if len(lines) > MAX_COUNT:
            return None
        read = orjson.loads(text)
        jobs = dict(sorted(map(_job, lines)))
        _check_gangs(jobs)
    except (ValueError, zlib.error, binascii.Error, ValidationError, UsageError):
        return None
    return Carried(jobs, read) if jobs and isinstance(read, str) else None


def digest(head: Head) -> str:
    """What a person compares: it differs if a job, the owner or the workflow does."""
    text = json.dumps([head.workflow, head.name, head.owner, head.jobs])
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_jobs(label: str) -> str:
    """The digest that is in the head."""
    return hashlib.sha256(label.encode("utf-8", "replace")).hexdigest()


def _job(line: bytes) -> tuple[str, TaskSpec]:
    key, _, content = line.partition(b" ")
    task_id = key.decode()
    if not is_task_id(task_id) or "-" in task_id or len(content) > MAX_SPEC:
        raise ValueError("no job of a workflow")
    spec = _SPEC.validate_json(content)
    check_spec(spec)
    if spec.job is None or spec.traits.comes_back:
        raise ValueError("no job of a workflow")
    return task_id, spec


def _check_gangs(jobs: Mapping[str, TaskSpec]) -> None:
    """Raise ValueError unless the members of each gang are all here, follow each other, and say the same."""
    keys = list(jobs)
    for at, spec in enumerate(jobs.values()):
        gang = spec.gang
        if gang is None:
            continue
        begin = at - gang.rank
        first = jobs[keys[begin]] if begin >= 0 else spec
        if gang.members != tuple(keys[max(0, begin) : begin + gang.size]):
            raise ValueError("no whole gang")
        if first.gang is None or first.gang.members != gang.members or first.terms != spec.terms:
            raise ValueError("no whole gang")


def _lasting(spec: TaskSpec) -> TaskSpec:
    """The spec without what depends on the state folder, as the places of its artifacts, or on where a gang runs."""
    gang = spec.gang
    count = len(spec.job.artifacts) if spec.job and not (gang and gang.rank) else 0
    return replace(
        spec,
        outputs=spec.outputs[: len(spec.outputs) - count],
        gang=gang and replace(gang, peers=(), port=None),
    )


# ---------------------------------------------------------------------- the head


def sign(key: bytes, head: Head, labels: Mapping[str, str], node: str) -> str:
    """The label of the head, on a container with these other labels."""
    body = base64.b64encode(zlib.compress(orjson.dumps(asdict(head)), 9)).decode()
    return f"{_VERSION}:{_signature(key, body, labels, node)}:{body}"


def has_signed(key: bytes | None, label: str, labels: Mapping[str, str], node: str) -> bool:
    """Whether the label was written with this key, for this task with this spec, on this node."""
    version, _, rest = label.partition(":")
    given, _, body = rest.partition(":")
    if not key or version != _VERSION:
        return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), _signature(key, body, labels, node).encode())


def parse_head(label: str) -> Head | None:
    """The head in a label, believed or not; None for anything else."""
    version, _, rest = label.partition(":")
    if version != _VERSION or len(label) > MAX_HEAD:
        return None
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.b64decode(rest.partition(":")[2], validate=True), 4 * MAX_HEAD)
        head = _HEAD.validate_json(content) if reader.eof else None
    except (ValueError, zlib.error, binascii.Error, ValidationError):
        return None
    if head is None or not is_task_id(head.workflow) or not JOB_NAME.fullmatch(head.name):
        return None
    return head if head.owner.isprintable() and head.owner else None


def _signature(key: bytes, body: str, labels: Mapping[str, str], node: str) -> str:
    spec = hashlib.sha256(labels.get(SPEC, "").encode("utf-8", "replace")).hexdigest()
    text = json.dumps([_VERSION, node, labels.get(TASK, ""), spec, body])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
