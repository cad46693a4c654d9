"""Runs a VPS in another container: of a snapshot, on other GPUs, or on another node."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.submit.request import Submit
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.stops import Stops
from agentless.controller.vps.starts import VpsStarts
from agentless.errors import AgentlessError, RuntimeFailed, Unreachable, error_named
from agentless.model.caller import Caller
from agentless.model.images.env import EnvRef
from agentless.model.scheduling.needs import SLICE_TYPE
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Assigning, Ended, Pending, Placement, Scheduled, Task

_log = logging.getLogger(__name__)

SpecOf = Callable[[Task], Awaitable[TaskSpec]]
"""Makes the spec of the new container, when the old one has stopped."""


class Replacement:
    """Replaces containers. Until the new one runs, the old one is kept; if it never does, the old one goes on."""

    def __init__(
        self, submission: Submission, stops: Stops, removal: Removal, starts: VpsStarts, ledger: Ledger, lookup: Lookup
    ) -> None:
        self._submission = submission
        self._stops = stops
        self._removal = removal
        self._starts = starts
        self._ledger = ledger
        self._lookup = lookup

    async def replace(self, old: Task, wanted: TaskSpec, spec_of: SpecOf, by: Caller) -> Task:
        """Replace the container of a VPS; the caller then gives the new task its name, and calls `clear`.

        If there is no room for what is `wanted`, nothing is stopped.
        """
        ran = old.live
        self._submission.check_room(wanted, old)
        with self._starts.keeping(old):
            try:
                old = await self._stops.ask(old, "stop", by=by)
            except Unreachable:
                # It is stopped when its node answers, so that it does not run twice.
                _log.info("VPS %s: its node does not answer", old.spec.name)
            try:
                return await self._begin(old, await spec_of(old), by)
            except AgentlessError:
                if ran and isinstance(old.status, Ended):
                    with suppress(AgentlessError):
                        await self._starts.start(old, "its replacement could not be started")
                raise

    async def clear(self, old: Task, new: Task, how: str, by: Caller) -> str:
        """Remove the container that was replaced; returns what is left of it, in words."""
        left, later = "", f"to remove it later, run: agentless rm {old.id}"
        if self._lookup.task(old.id).live:
            left = f"{old.node} keeps the earlier container, and stops it when it answers; {later}"
        else:
            try:
                await self._removal.remove(old.id, by=by, vps=True)
            except AgentlessError as error:
                left = f"{old.node} keeps the earlier container ({error}); {later}"
        self._ledger.publish(new, "replaced", "; ".join(filter(None, (f"{how}, by {by}", left))))
        return left

    # ------------------------------------------------------------------ inside

    async def _begin(self, old: Task, spec: TaskSpec, by: Caller) -> Task:
        """Start a container now; raises what is in the way, and then nothing is left of it."""
        spec = replace(spec, replaces=old.id, terms=replace(spec.terms, wait_for=0.0, start_at=None))
        request = Submit((spec,), {}, by, owner=old.owner)
        same = old.placement is not None and spec.needs == exactly(spec, old.placement).needs
        start = await self._submission.replace(request, old, same=same)
        if start.task is None:
            raise error_named("", start.message, start.exit_code)
        task_id = start.task.id
        await self._ledger.until(lambda: not _is_coming(self._lookup.task(task_id)))
        task = self._lookup.task(task_id)
        if task.container is None:
            reason = task.status.reason if isinstance(task.status, Ended) else None
            with suppress(AgentlessError):
                await self._removal.remove(task_id, force=True, by=by, vps=True)
            raise RuntimeFailed(reason or f"the new container of VPS {spec.name} did not start")
        return task


def from_snapshot(spec: TaskSpec, ref: EnvRef) -> TaskSpec:
    """The spec with a snapshot as its image."""
    return replace(spec, container=str(ref), image=None, image_id=None, pull=None)


def exactly(spec: TaskSpec, placement: Placement | None) -> TaskSpec:
    """The spec on the same GPUs; as it is if it never had any."""
    if placement is None:
        return spec
    needs = replace(
        spec.needs, gpus=len(placement.gpus), nodes=(placement.node,), indices=placement.gpus, numa=placement.numa
    )
    return replace(spec, needs=needs)


def anywhere(spec: TaskSpec) -> TaskSpec:
    """The spec on any GPUs of this kind; on slices if it has slices."""
    needs = replace(spec.needs, nodes=(), indices=(), numa=None)
    if any(isinstance(number, str) for number in spec.needs.indices) and not needs.slices:
        needs = replace(needs, gpu_types=(SLICE_TYPE,))
    return replace(spec, needs=needs)


def _is_coming(task: Task) -> bool:
    return isinstance(task.status, (Scheduled, Pending, Assigning))
