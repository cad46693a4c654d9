"""What can be done with a VPS, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentless.controller.submit.request import Submit
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.stops import Stops
from agentless.controller.vps.names import VpsNames
from agentless.controller.vps.replacement import Replacement, SpecOf, anywhere, exactly, from_snapshot
from agentless.controller.vps.resizing import Resize, Resizing
from agentless.controller.vps.snapshots import Snapshots
from agentless.controller.vps.starts import VpsStarts
from agentless.errors import AgentlessError, NoAnswer, NotFound, Refused, RuntimeFailed, Unreachable, UsageError
from agentless.model.caller import Caller
from agentless.model.images.env import EnvRef
from agentless.model.images.snapshot import check_vps_name, snapshot_words
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.view import SnapshotView, StartView, TaskView


@dataclass(frozen=True, slots=True)
class Started:
    """A VPS that was started; `message` tells what is left of an earlier container."""

    task: Task
    message: str = ""


class Vps:
    """Changes VPS. Each change waits for the one before it."""

    def __init__(
        self,
        names: VpsNames,
        changes: tuple[Submission, Stops, Removal, VpsStarts],
        snapshots: Snapshots,
        replacement: Replacement,
        resizing: Resizing,
    ) -> None:
        self.names = names
        self.snapshots = snapshots
        self._submission, self._stops, self._removal, self._starts = changes
        self._replacement = replacement
        self._resizing = resizing

    async def create(self, request: Submit) -> StartView:
        """Create one; raises Refused if the name is taken."""
        [spec, *more] = request.specs
        if more:
            raise UsageError("one VPS has one target; create each by its name")
        spec = replace(spec, workload="vps")
        name = check_vps_name(spec.name or "")
        async with self.names.creating(name):
            [start] = await self._submission.submit(replace(request, specs=(spec,)))
            if start.task and not request.dry_run:
                self.names.set(name, start.task.id)
            return start

    async def stop(self, name: str, grace: float | None, *, by: Caller) -> Task:
        """Stop it: its GPUs are free, and its files stay. Waits for its snapshot, if it is to have one."""
        async with self.names.changing(name) as task:
            self._starts.leave(task.id)
            stopped = await self._stops.ask(task, "stop", grace, by=by)
            if failed := await self.snapshots.settled(task.id):
                raise RuntimeFailed(f"VPS {name} has stopped, but its snapshot could not be saved: {failed}")
            return stopped

    async def start(self, name: str, *, by: Caller, elsewhere: bool = False) -> Started:
        """Start it again with the same GPUs; `elsewhere`: or with others, in a new container from a snapshot."""
        async with self.names.changing(name) as task:
            is_away = task.live and self._starts.is_away(task)
            if task.live and not is_away:
                raise Refused(f"VPS {name} is {task.state}; nothing to start")
            try:
                if is_away:
                    raise Unreachable(f"VPS {name}: cannot reach {task.node}")
                return Started(await self._starts.start(task, f"agentless vps start, by {by}"))
            except (Refused, NoAnswer) as error:
                if not elsewhere:
                    hint = f"for other GPUs or another node, run: agentless vps start {name} --anywhere"
                    raise type(error)(f"{error}; {hint}") from None
                return await self._elsewhere(task, error, by)

    async def restart(self, name: str, grace: float | None, *, by: Caller) -> Started:
        """Stop it if it runs, and start it."""
        task = self.names.find(name)
        with self._starts.keeping(task):
            if task.live:
                await self.stop(name, grace, by=by)
            return await self.start(name, by=by)

    async def snapshot(self, name: str, message: str, *, by: Caller) -> SnapshotView:
        """Save its files as a snapshot."""
        async with self.names.changing(name) as task:
            return await self.snapshots.take(task, message, by.name)

    async def restore(self, name: str, snapshot: str, *, by: Caller) -> Started:
        """Run it in a new container from a snapshot, on its GPUs; what was changed since is lost."""
        async with self.names.changing(name) as task:
            ref = await self.snapshots.resolve(snapshot, name)

            async def restored(old: Task) -> TaskSpec:
                if failed := await self.snapshots.settled(old.id):
                    raise RuntimeFailed(f"nothing was restored: the snapshot on stop could not be saved: {failed}")
                return exactly(from_snapshot(old.spec, ref), old.placement)

            wanted = exactly(task.spec, task.placement)
            with self.snapshots.needing(ref):
                return await self._replaced(task, wanted, restored, f"restored from {snapshot_words(ref)}", by)

    async def resize(self, name: str, change: Resize, *, by: Caller) -> Started:
        """Give it other cores, memory or GPUs: at once if it keeps its GPUs, else in a new container."""
        async with self.names.changing(name) as task:
            change.check(task)
            if change.is_live:
                return Started(await self._resizing.update(task, change, by))
            wanted = change.wanted(task)

            async def resized(old: Task) -> TaskSpec:
                return from_snapshot(wanted, await self._latest(old, "before it was resized", by))

            return await self._replaced(task, wanted, resized, "resized", by)

    async def change_terms(self, name: str, given: Mapping[str, Any], *, by: Caller) -> Task:
        """Change some of its terms; raises Refused if it does not run."""
        async with self.names.changing(name) as task:
            if not task.live:
                raise Refused(f"VPS {name} is {task.state}; first run: agentless vps start {name}")
            return self._resizing.change_terms(task, given, by)

    async def remove(self, name: str, *, force: bool, by: Caller) -> TaskView:
        """Remove it with its files; a live one only by `force`. Its snapshots stay."""
        async with self.names.changing(name) as task:
            if task.live and not force:
                raise Refused(f"VPS {name} is {task.state}; first run: agentless vps stop {name}, or use rm --force")
            removed = await self._removal.remove(task.id, force=force, by=by, vps=True)
            left = []
            for earlier in self.names.record(name).replaced:
                try:
                    await self._removal.remove(earlier, force=True, by=by, vps=True)
                except NotFound:
                    continue
                except AgentlessError:
                    left.append(earlier)  # its node does not answer
            self.names.drop(name, left)
            return removed

    # ------------------------------------------------------------------ inside

    async def _elsewhere(self, task: Task, error: AgentlessError, by: Caller) -> Started:
        wanted = anywhere(task.spec)
        self._submission.check_room(wanted, task)
        try:
            ref = await self._latest(task, "before it was moved", by)
        except Refused:
            raise type(error)(f"{error}; and there is no snapshot from which it could be started elsewhere") from None

        async def moved(old: Task) -> TaskSpec:
            return anywhere(from_snapshot(old.spec, ref))

        return await self._replaced(task, wanted, moved, f"started elsewhere from {snapshot_words(ref)}", by)

    async def _latest(self, task: Task, why: str, by: Caller) -> EnvRef:
        ref = await self.snapshots.latest(task, why, by.name)
        if ref is None:
            raise Refused(f"VPS {task.spec.name} has no snapshot, and {task.node} does not answer")
        return ref

    async def _replaced(self, old: Task, wanted: TaskSpec, spec_of: SpecOf, how: str, by: Caller) -> Started:
        new = await self._replacement.replace(old, wanted, spec_of, by)
        left = await self._replacement.clear(old, new, f"{how}; it was task {old.id}", by)
        if not left:
            self.names.cleared(new.spec.name or "", old.id)
        return Started(new, left)
