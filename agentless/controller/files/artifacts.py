"""Artifacts: what a job of a workflow leaves for the jobs that require it. Kept here, each content once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from agentless.controller.files.arrivals import Arrivals
from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.in_thread import in_thread
from agentless.controller.state.event_bus import EventBus, TaskAdopted
from agentless.controller.state.lookup import Lookup
from agentless.errors import NotFound, Refused, RuntimeFailed, UsageError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.tasks.job import check_job
from agentless.model.tasks.requirement import Condition, Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable
from agentless.stores.files.snapshots import SnapshotStore

TOP = "/artifacts"
"""Where a job finds the artifacts of others: below it, by the name of the job."""
LOOK_EVERY = 2.0
"""Seconds between two looks at what has not arrived."""

_PLAIN = re.compile(r"[A-Za-z0-9_.+-]*")
_LONGEST = 200
"""Characters of the name of a folder, which may have 255 bytes."""

_REMEMBERED = 10_000

Tell = Callable[[str], None]
"""Tells what a job waits for."""


class Artifacts:
    """Has artifacts fetched as outputs into a folder of its own, and gives them to other jobs as uploads."""

    def __init__(
        self,
        folder: Path,
        expected: ExpectedOutputs,
        arrivals: Arrivals,
        snapshots: SnapshotStore,
        lookup: Lookup,
        bus: EventBus,
    ) -> None:
        self._folder = folder
        self._expected = expected
        self._arrivals = arrivals
        self._snapshots = snapshots
        self._lookup = lookup
        self._bus = bus
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._taken: dict[str, str] = {}
        self._bare: dict[str, None] = {}  # the last tasks that leave nothing: a thousand jobs may require the same one
        bus.subscribe(TaskAdopted, self._adopted)

    def wanted(self, spec: TaskSpec) -> TaskSpec:
        """The spec of a job, with its artifacts among the outputs. On several nodes, they are those of rank 0."""
        paths = spec.job.artifacts if spec.job and not (spec.gang and spec.gang.rank) else ()
        outputs = tuple(Output(path, f"{self._folder}/{{id}}/") for path in map(posixpath.normpath, paths))
        return replace(spec, outputs=(*spec.outputs, *outputs)) if outputs else spec

    def has_source(self, task: Task) -> bool:
        """Whether a job requires others that leave something for it."""
        return any(self._source(task, each) for each in task.spec.terms.requires if not each.batch)

    async def given_to(self, task: Task, tell: Tell) -> tuple[Upload, ...]:
        """What a job gets of those that it requires, once it has arrived here. Raises RuntimeFailed."""
        found = [await self._given(task, each, tell) for each in task.spec.terms.requires if not each.batch]
        return tuple(upload for upload in found if upload)

    def forget(self, task_id: str) -> None:
        """Remove the artifacts of a task."""
        shutil.rmtree(self._place(task_id), ignore_errors=True)
        self._taken = {key: taken for key, taken in self._taken.items() if first_try(key) != first_try(task_id)}
        self._locks.pop(first_try(task_id), None)
        self._bare.pop(first_try(task_id), None)

    # ------------------------------------------------------------------ inside

    def _adopted(self, event: TaskAdopted) -> None:
        """Fetch the artifacts of a job again: they are in its container.

        Its label says only which paths of the container these are. Where they come to is decided here, and other
        outputs stay where they are: anybody may have written the label.
        """
        task = event.task
        if task.spec.job is None or task.spec.on_node_itself:
            return
        try:
            check_job(task.spec.job)
        except UsageError:
            return
        if outputs := self.wanted(replace(task.spec, outputs=())).outputs:
            self._expected.want_again(task, outputs)

    def _source(self, task: Task, requirement: Requirement) -> Task | None:
        """The required task, if it leaves artifacts for this one."""
        if requirement.on in self._bare:
            return None
        try:
            before = self._lookup.find(requirement.on)
        except NotFound:
            return None
        if before.spec.job and before.spec.job.artifacts:
            return before if task.spec.job and before.batch == task.batch else None
        self._bare[requirement.on] = None
        while len(self._bare) > _REMEMBERED:
            del self._bare[next(iter(self._bare))]
        return None

    async def _given(self, task: Task, requirement: Requirement, tell: Tell) -> Upload | None:
        before = self._source(task, requirement)
        if before is None or before.spec.job is None:
            return None
        await self._arrival(before, requirement.state, tell)
        self._check(before, requirement)
        place = self._place(before.id)
        if not place.is_dir():
            return None
        async with self._locks[first_try(before.id)]:  # many may wait for the same
            if not self._has(self._taken.get(before.id)):
                try:
                    self._taken[before.id] = await in_thread(self._snapshots.take, place)
                except (Refused, UsageError) as error:
                    raise RuntimeFailed(f"artifacts of job {before.spec.job.name}: {error}") from None
                await in_thread(self._check_contents, before, place, self._taken[before.id])
        return Upload(str(place), _target(before), self._taken[before.id])

    async def _arrival(self, before: Task, state: Condition, tell: Tell) -> None:
        """Raise RuntimeFailed if the artifacts of a job are not here, but are needed.

        A job that requires others starts when these are here. So it waits only if a task was there before that was so.
        """
        told = ""
        while (words := self._arrivals.awaited(before.id)) is not None:
            view = next(iter(self._expected.view(before)), None)
            if view and view.state == "stuck" and words != told:  # not the bytes so far: each step is written to disk
                told = words
                tell(f"waiting for artifacts of job {before.spec.name}: {told}")
            await self._bus.until(lambda: self._arrivals.awaited(before.id) is None, LOOK_EVERY)
        if before.id in self._expected and state == "completed":
            view = next(iter(self._expected.view(before)), None)
            words = f": {view.words.removesuffix('; retrying')}" if view else ""
            raise RuntimeFailed(
                f"artifacts of job {before.spec.name} cannot be fetched{words}; once they can, run: agentless workflow "
                f"retry {before.batch}"
            )

    def _check(self, before: Task, requirement: Requirement) -> None:
        """Raise RuntimeFailed if an artifact is missing, unless the job was not required to complete."""
        wanted, brought = self._expected.store.wanted(before.id), self._expected.store.brought(before.id)
        if requirement.state != "completed" or before.spec.job is None:
            return
        if wanted is None:
            raise RuntimeFailed(f"artifacts of job {before.spec.job.name} were lost; run it again")
        place = f"{self._place(before.id)}/"
        for output, one in zip(wanted.outputs, brought or (), strict=False):
            if output.local == place and not one.here:
                raise RuntimeFailed(f"job {before.spec.job.name} left no {output.path} for this one: {one.words}")

    def _has(self, snapshot: str | None) -> bool:
        """Whether all contents of a snapshot are in the store."""
        try:
            return snapshot is not None and not self._snapshots.missing(self._snapshots.get(snapshot))
        except Refused:
            return False

    def _check_contents(self, before: Task, place: Path, snapshot: str) -> None:
        """In a thread. Raise RuntimeFailed if the files are not those that arrived."""
        store, job = self._expected.store, before.spec.name
        found = {path: entry for path, entry in self._snapshots.get(snapshot).items() if entry.kind != "folder"}
        for path, entry in found.items():
            came = store.placed(str(place / path))
            if came is not None and came != (entry.content if entry.kind == "file" else f"link:{entry.content}"):
                self._refuse(before, f"{printable(path)} of job {job} was changed in {place} after it had arrived")
        wanted, brought = store.wanted(before.id), store.brought(before.id)
        outputs = zip(wanted.outputs if wanted else (), brought or (), strict=False)
        if len(found) < sum(one.files for output, one in outputs if output.local == f"{place}/"):
            self._refuse(before, f"an artifact of job {job} was removed from {place} after it had arrived")

    def _refuse(self, before: Task, words: str) -> NoReturn:
        del self._taken[before.id]
        raise RuntimeFailed(
            f"{words}; to make it again, run: agentless workflow retry {before.batch} --from {before.spec.name}"
        )

    def _place(self, task_id: str) -> Path:
        return self._folder / first_try(task_id)


def _target(before: Task) -> str:
    """The folder for the artifacts of a job; one of several tasks of it has its own below.

    Values that cannot be read from the name as they are make it end with a digest of them.
    """
    values = before.spec.parameters
    name = before.spec.job.name if before.spec.job else ""
    if not values:
        return posixpath.join(TOP, name)
    folder = ",".join(f"{key}={value}" for key, value in values.items())
    plain = all(_PLAIN.fullmatch(word) for word in (*values, *values.values())) and len(folder) <= _LONGEST
    if not plain:
        digest = hashlib.sha256(json.dumps(list(values.items())).encode()).hexdigest()[:8]
        folder = f"{re.sub(r'[^A-Za-z0-9_.=,+-]', '_', folder)[:_LONGEST]}-{digest}"
    return posixpath.join(TOP, name, folder)
