"""From a request to tasks: checked, placed or queued, on disk, and answered when it is known what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agentless.controller.envs.envs import Envs
from agentless.controller.files.outputs import Outputs
from agentless.controller.files.uploads import Uploads
from agentless.controller.files.volumes import Volumes
from agentless.controller.nodes.registry import Core
from agentless.controller.scheduling.scheduler import POLICIES, Scheduler
from agentless.controller.tasks.launcher import ANSWER_WITHIN, Launcher
from agentless.errors import AgentlessError, NoAnswer, Refused, Unreachable, UsageError
from agentless.model.images.env import NULL
from agentless.model.nodes.cluster import Cluster
from agentless.model.owner import check_owner
from agentless.model.tasks.event import Assigned, Delayed, Event, Queued
from agentless.model.tasks.spec import Mount, TaskSpec, check_secrets, check_spec
from agentless.model.tasks.task import Assigning, Ended, Lost, Placement, Task
from agentless.model.tasks.task_id import new_task_id
from agentless.model.view import StartView
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.images.envs import assumed_words
from agentless.rules.scheduling.plan import amounts_of
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.views.nearest import nearest

SHARED = "/shared"
"""Where a task sees the folder that all nodes have (`shared_dir` of the inventory)."""
SUBMITTED = 10_000
"""Ended tasks, the newest, among which those of a request that is repeated are looked for."""


_Why = TypeVar("_Why")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Submit:
    """One request: each spec becomes a task, all of them one batch.

    `owner` is whose they are and `by` who asks, None: the controller's own. `name` is the request's own, if it has one;
    `repeated`: it was sent before, and the answer was lost.
    """

    specs: tuple[TaskSpec, ...]
    secrets: Mapping[str, str]
    dry_run: bool = False
    owner: str | None = None
    by: str | None = None
    name: str | None = None
    repeated: bool = False


class Intake:
    """Takes tasks in."""

    def __init__(
        self,
        core: Core,
        scheduler: Scheduler,
        launcher: Launcher,
        envs: Envs,
        volumes: Volumes,
        uploads: Uploads,
        outputs: Outputs,
    ) -> None:
        self._core = core
        self._scheduler = scheduler
        self._launcher = launcher
        self._envs = envs
        self._volumes = volumes
        self._uploads = uploads
        self._outputs = outputs
        self._last_id = ""

    async def submit(self, request: Submit) -> list[StartView]:
        """Start or queue each task; each is served or fails alone. What cannot be meant fails as a whole, at once."""
        if not request.specs:
            raise UsageError("no target: name a node, like node1::0; agentless gpus shows what is free")
        check_secrets(request.secrets)
        if request.repeated and (known := self._submitted(request)):
            return await self._as_they_are(request, known)
        for spec in request.specs:
            self.check(spec)
            if unknown := sorted(set(request.secrets).difference(spec.secret_env)):
                raise UsageError(f"the secret {unknown[0]!r} is not among the task's secret_env")
        specs = await self._volumes.placed(await self._in_envs(request.specs))
        notice = self._assumed(request.specs)
        tasks = self._tasks(replace(request, specs=specs))
        if not request.dry_run:
            self._uploads.check(tasks)
        await asyncio.gather(*(self._hear(task) for task in tasks))
        # No await from here until the allocations are on disk: nobody else can be given these GPUs in between.
        placements = self._scheduler.look([task for task in tasks if not self._is_for_later(task)]).starts
        if request.dry_run:
            waits = self._told([task for task in tasks if task.id not in placements], self._waits)
            told = [self._rehearse(t, placements.get(t.id) or waits[t.id], request.secrets) for t in tasks]
            return _noticed(told, notice)
        refused = self._take_in(tasks, placements, request.secrets, request.by or self._core.owner)
        # Nor until it is told who waits: the next look may start them, and those launches are not waited for here.
        starts = [
            None if task.id in placements and not error else self._not_begun(task, error)
            for task, error in zip(tasks, refused, strict=True)
        ]
        begun = [task for task, start in zip(tasks, starts, strict=True) if start is None]
        launched = iter(await asyncio.gather(*(self._launched(task) for task in begun)))
        return _noticed([start or next(launched) for start in starts], notice)

    def _submitted(self, request: Submit) -> list[Task]:
        """The tasks that this request has submitted before."""
        every = {task.id: task for task in (*self._core.history.newest(SUBMITTED), *self._core.tasks.values())}
        found = [task for _, task in sorted(every.items()) if task.request and task.request == request.name]
        return [task for task in found if task.attempt == 1]

    async def _as_they_are(self, request: Submit, tasks: Sequence[Task]) -> list[StartView]:
        """What became of the tasks of a request whose answer was lost with the controller before this one."""
        live = self._core.tasks

        def are_settled() -> bool:
            return not any(task.id in live and isinstance(live[task.id].status, Assigning) for task in tasks)

        await self._core.hub.until(are_settled, ANSWER_WITHIN)
        refused = StartView("", None, Refused.exit_code, "refused by a controller that has ended; submit it again")
        return [*map(self._begun, tasks), *[refused] * (len(request.specs) - len(tasks))]

    def check(self, spec: TaskSpec) -> None:
        """Raises UsageError for what cannot be meant, and NotFound for a node that is not there."""
        check_spec(spec)
        if spec.needs.policy is not None and spec.needs.policy not in POLICIES:
            hint = nearest(spec.needs.policy, POLICIES)
            raise UsageError(f"there is no policy {spec.needs.policy!r}{hint}; {', '.join(POLICIES)}")
        for name in (*spec.needs.nodes, *spec.needs.exclude):
            self._core.link(name)

    async def _in_envs(self, specs: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
        """The specs, each with the version of its env that is the current one now, and the image that it has to be.

        Raises NotFound, or Unreachable when no node that has it answers.
        """
        wanted, found = [self._env_of(spec) for spec in specs], {}
        for text in dict.fromkeys(wanted):
            if text is not None and text != NULL:
                ref, version = await self._envs.resolve(text)
                self._envs.holder(ref, version.id)
                found[text] = (str(ref), ref.image, version.id)
        meant = tuple(
            replace(spec, container=found[text][0], image=found[text][1], image_id=found[text][2])
            if text in found
            else replace(spec, container=text)
            for spec, text in zip(specs, wanted, strict=True)
        )
        for spec in meant:
            check_spec(spec)  # once more: the usual env may be none at all
        return meant

    def _env_of(self, spec: TaskSpec) -> str | None:
        return spec.container or (self._core.container if spec.image is None else None)

    def _assumed(self, specs: Iterable[TaskSpec]) -> str:
        """What there is to say of envs that are meant without a version, where the current one is only assumed."""
        meant = set(map(self._env_of, specs))
        return "; ".join(assumed_words(*each) for each in self._envs.assumed().items() if each[0] in meant)

    def _tasks(self, request: Submit) -> list[Task]:
        core, tasks = self._core, list[Task]()
        owner = core.owner if request.owner is None else check_owner(request.owner, "--owner")
        for spec in request.specs:
            node = core.link(spec.needs.node).node if spec.needs.node else None
            image = spec.image or (node.image if node else core.image)
            if image is None and not spec.on_node_itself:
                raise UsageError(
                    f"no image: add --image, or 'image:' under 'defaults:' of the inventory ({spec.needs})"
                )
            now = core.clock.now()
            self._last_id = new_task_id(now, self._last_id)
            batch = tasks[0].id if tasks else self._last_id
            whole = spec if spec.on_node_itself else replace(spec, image=image, mounts=self._mounts(spec))
            tasks.append(Task(self._last_id, whole, batch, owner, now, request=request.name))
        return tasks

    def _mounts(self, spec: TaskSpec) -> tuple[Mount, ...]:
        """The spec's mounts, and the folder that all nodes share, unless the spec has something else in its place."""
        shared = self._core.shared_dir
        if shared is None or SHARED in spec.mounted_at:
            return spec.mounts
        return (*spec.mounts, Mount(shared, SHARED))

    async def _hear(self, task: Task) -> None:
        """Wait until the nodes that will do have answered, or are known not to."""
        if task.spec.needs.nodes:
            await asyncio.gather(*(self._core.link(node).ready() for node in task.spec.needs.nodes))
        else:
            await self._core.heard(self._core.links)

    def _rehearse(self, task: Task, found: Placement | tuple[int, str], secrets: Mapping[str, str]) -> StartView:
        target = str(task.spec.needs)
        if isinstance(found, tuple):
            return StartView(target, None, *found)
        link = self._core.link(found.node)
        command = link.runtime_of(task).launch(task, found, secrets, engine=link.observation.engine)
        return StartView(target, None, 0, "", command.text(masked=True), str(found))

    def _waits(self, cluster: Cluster, task: Task) -> tuple[int, str]:
        """What would become of a task that does not start now: the exit code, and why."""
        if error := self._turned_away(cluster, task):
            return error.exit_code, str(error)
        until = "for its time" if self._is_for_later(task) else str(_refusal(cluster, task))
        return 0, f"would wait: {until}"

    def _take_in(
        self, tasks: Sequence[Task], placements: Mapping[str, Placement], secrets: Mapping[str, str], by: str
    ) -> list[AgentlessError | None]:
        """Remember tasks, placed or queued, in one write; of each why it is refused, None when it is not."""
        core = self._core
        refused = self._told([task for task in tasks if task.id not in placements], self._turned_away)
        kept = [task for task in tasks if not refused.get(task.id)]
        events = [(task, self._first(task, placements.get(task.id))) for task in kept]
        begun = {task.id for task in kept if task.id in placements}
        try:
            for task in kept:
                core.secrets.put(task.id, secrets)
                self._outputs.want(task)
            core.launching.update(begun)
            owner = kept[0].owner if kept else by
            core.add_all(events, f"submitted by {by}" + (f" for {owner}" if owner != by else ""))
        except AgentlessError as error:
            core.launching.difference_update(begun)
            for task in kept:
                core.secrets.remove(task.id)
                self._outputs.forget(task)
            return [refused.get(task.id) or error for task in tasks]
        return [refused.get(task.id) for task in tasks]

    def _told(self, tasks: Iterable[Task], why: Callable[[Cluster, Task], _Why]) -> dict[str, _Why]:
        """Of each task why it does not start; looked for once for all that are alike in what matters for that."""
        cluster, found, told = self._core.cluster(), dict[object, _Why](), dict[str, _Why]()
        for task in tasks:
            alike = shape_of(task.spec, task.owner), amounts_of(task), task.spec.terms
            if alike not in found:
                found[alike] = why(cluster, task)
            told[task.id] = found[alike]
        return told

    def _is_for_later(self, task: Task) -> bool:
        return (task.spec.terms.start_at or 0.0) > self._core.clock.now()

    def _first(self, task: Task, placement: Placement | None) -> Event:
        if self._is_for_later(task):
            return Delayed(task.spec.terms.start_at or 0.0)
        return Assigned(placement) if placement else Queued()

    def _turned_away(self, cluster: Cluster, task: Task) -> AgentlessError | None:
        """Why a task that does not start now is not queued either."""
        if words := never(cluster, task.spec, task.owner):
            return Refused(words)
        if self._is_for_later(task):
            return None
        error = _refusal(cluster, task)
        return error if task.spec.terms.wait_for == 0 or isinstance(error, Unreachable) else None

    def _not_begun(self, task: Task, turned_away: AgentlessError | None) -> StartView:
        target = str(task.spec.needs)
        if turned_away:
            return StartView(target, None, turned_away.exit_code, str(turned_away))
        return StartView(target, self._core.view(self._core.tasks[task.id]), 0, "")

    async def _launched(self, task: Task) -> StartView:
        """Wait until it is known what has become of the launch of a task."""
        core, target = self._core, str(task.spec.needs)
        try:
            await self._launcher.first(task.id, self._scheduler.elsewhere)
        except Refused as error:
            if task.id not in core.tasks:
                return StartView(target, None, error.exit_code, str(error))
        except NoAnswer as error:
            await self._launcher.hear_of(task.id)
            now = core.tasks.get(task.id, task)
            if isinstance(now.status, (Assigning, Lost)):
                words = f"task {task.id} may have been started: agentless ps shows it when {now.node} answers"
                return StartView(target, core.view(now), error.exit_code, f"{error}; {words}")
        except AgentlessError as error:
            words = f"task {task.id} may run all the same: agentless ps shows it"
            return StartView(target, core.view(core.tasks.get(task.id, task)), error.exit_code, f"{error}; {words}")
        except Exception as error:  # noqa: BLE001 - who is not told of the task would start it twice
            _log.exception("task %s: launching it failed in an unforeseen way", task.id)
            words = (
                f"agentless failed while it started task {task.id} ({error!r}), which may run: agentless ps shows it"
            )
            return StartView(target, core.view(core.tasks.get(task.id, task)), 1, words)
        return self._begun(task)

    def _begun(self, task: Task) -> StartView:
        """What has become of a task that was taken in, as its last try is now."""
        core, target = self._core, str(task.spec.needs)
        if not core.knows(task.id):
            return StartView(target, None, 1, f"task {task.id} was removed while it was being started")
        now = core.find(task.id)
        failed = isinstance(now.status, Ended) and now.status.container is None
        reason = (now.status.reason if isinstance(now.status, Ended) else None) or ""
        return StartView(target, core.view(now), int(failed), reason if failed else "")


def _noticed(starts: list[StartView], notice: str) -> list[StartView]:
    """With a notice about all of them, said once."""
    if not notice or not starts:
        return starts
    return [replace(starts[0], message="; ".join(filter(None, (starts[0].message, notice)))), *starts[1:]]


def _refusal(cluster: Cluster, task: Task) -> AgentlessError:
    found = refusal(cluster, task.spec, task.owner)
    return found or Refused(f"{task.spec.needs}: what is free is given or promised to tasks before it")
