"""From a request to a running container: place, save, launch, and find out when the answer got lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentless.controller.core import Core
from agentless.controller.link import Link
from agentless.errors import AgentlessError, NoAnswer, Refused, RuntimeFailed, TemplateError, UsageError
from agentless.model.event import Assigned, Event, Launched, LaunchFailed, Step
from agentless.model.spec import Mount, TaskSpec, check_spec
from agentless.model.target import Target
from agentless.model.task import Assigning, Ended, Lost, Task, new_task_id
from agentless.model.view import StartView
from agentless.rules.place import place
from agentless.runtimes.docker import Held, ImageMissing
from agentless.session import Stream

SHARED = "/shared"
"""Where a task sees the folder that all nodes have (`shared_dir` of the inventory)."""

ANSWER_WITHIN = 15.0
"""Seconds a submit waits for the truth after the answer to its launch was lost."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Submit:
    """One request: the same spec on several targets is one batch."""

    targets: tuple[Target, ...]
    spec: TaskSpec
    secrets: Mapping[str, str]
    dry_run: bool = False


class Launcher:
    """Starts tasks."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last_id = ""
        self._background: set[asyncio.Task[None]] = set()
        core.relaunch = self._relaunch

    async def submit(self, request: Submit) -> list[StartView]:
        """Start one task per target; each is served or fails alone. What cannot be meant fails as a whole, at once."""
        if not request.targets:
            raise UsageError("no target: name a node, like node1::0; agentless gpus shows what is free")
        check_spec(request.spec)
        tasks = self._tasks(request)
        if request.dry_run:
            return list(await asyncio.gather(*(self._rehearse(task, request.secrets) for task in tasks)))
        return list(await asyncio.gather(*(self._start(task, request.secrets) for task in tasks)))

    def _tasks(self, request: Submit) -> list[Task]:
        core, tasks = self._core, list[Task]()
        for target in request.targets:
            node = core.link(target.node).node
            image = request.spec.image or node.image
            if image is None:
                raise UsageError(f"no image: add --image, or 'image:' under 'defaults:' of the inventory ({target})")
            now = core.clock.now()
            self._last_id = new_task_id(now, self._last_id)
            batch = tasks[0].id if tasks else self._last_id
            spec = replace(request.spec, image=image, mounts=self._mounts(request.spec))
            tasks.append(Task(self._last_id, spec, target, batch, core.owner, now))
        return tasks

    def _mounts(self, spec: TaskSpec) -> tuple[Mount, ...]:
        """The spec's mounts, and the folder that all nodes share, unless the spec has something else in its place."""
        shared = self._core.shared_dir
        if shared is None or any(mount.target == SHARED for mount in spec.mounts):
            return spec.mounts
        return (*spec.mounts, Mount(shared, SHARED))

    async def _rehearse(self, task: Task, secrets: Mapping[str, str]) -> StartView:
        link = self._core.link(task.target.node)
        await link.ready()
        try:
            placement = place(self._core.cluster(), task.target, task.spec)
        except AgentlessError as error:
            return StartView(str(task.target), None, error.exit_code, str(error))
        command = link.runtime.launch(task, placement, secrets)
        return StartView(str(task.target), None, 0, "", command.text(masked=True))

    async def _start(self, task: Task, secrets: Mapping[str, str]) -> StartView:
        core, target = self._core, str(task.target)
        await core.link(task.target.node).ready()
        try:
            core.link(task.target.node)  # the inventory may have changed meanwhile
            placement = place(core.cluster(), task.target, task.spec)
            if unknown := sorted(set(secrets).difference(task.spec.secret_env)):
                raise UsageError(f"the secret {unknown[0]!r} is not among the task's secret_env")
            # No await from here until the allocation is on disk: nobody else can be given these GPUs in between.
            core.secrets.put(task.id, secrets)
            core.launching.add(task.id)
            core.add(task, Assigned(placement), f"submitted by {core.owner}")
        except AgentlessError as error:
            core.launching.discard(task.id)
            core.secrets.remove(task.id)
            return StartView(target, None, error.exit_code, str(error))
        try:
            # Shielded: a client that goes away must not leave a launch half done.
            await asyncio.shield(self._spawn(self._first(task.id)))
        except Refused as error:
            return StartView(target, None, error.exit_code, str(error))
        except NoAnswer as error:
            await self._answer(task.id)
            now = core.tasks.get(task.id, task)
            if isinstance(now.status, (Assigning, Lost)):
                words = f"task {task.id} may have been started: agentless ps shows it when {placement.node} answers"
                return StartView(target, core.view(now), error.exit_code, f"{error}; {words}")
        except AgentlessError as error:
            words = f"task {task.id} may run all the same: agentless ps shows it"
            return StartView(target, core.view(core.tasks.get(task.id, task)), error.exit_code, f"{error}; {words}")
        if not core.knows(task.id):
            return StartView(target, None, 1, f"task {task.id} was removed while it was being started")
        now = core.find(task.id)
        failed = isinstance(now.status, Ended) and now.status.container is None
        reason = (now.status.reason if isinstance(now.status, Ended) else None) or ""
        return StartView(target, core.view(now), int(failed), reason if failed else "")

    async def _first(self, task_id: str) -> None:
        try:
            await self._launch(task_id)
        except Refused as error:
            if task := self._core.tasks.get(task_id):
                self._core.forget(task, "refused", str(error))
            raise

    async def _launch(self, task_id: str) -> None:
        """Launch, pulling the image first if the node lacks it. Raises Refused or NoAnswer.

        Whatever it waits for, the task may have been removed meanwhile: then there is nothing left to say of it.
        """
        core = self._core
        task = core.tasks.get(task_id)
        if not task:
            core.launching.discard(task_id)
            return
        core.launching.add(task_id)
        try:
            link = core.link(task.target.node)
            try:
                container = await self._try(link, task)
            except ImageMissing:
                await self._pull(link, task)
                container = await self._try(link, task)
            self._settle(task_id, Launched(container), f"docker run on {link.node.name} answered")
        except (RuntimeFailed, TemplateError) as error:
            self._settle(task_id, LaunchFailed(str(error)), f"the launch on {task.target.node} failed")
        finally:
            core.launching.discard(task_id)
        core.catch_up(task_id)

    def _settle(self, task_id: str, event: Event, cause: str) -> None:
        if task_id in self._core.tasks:
            self._core.apply(task_id, event, cause)

    async def _try(self, link: Link, task: Task) -> str:
        if task.placement is None:
            raise AssertionError("a task is placed before it is launched")
        command = link.runtime.launch(task, task.placement, self._core.secrets.get(task.id))
        return link.runtime.parse_launch(task, await link.run(command))

    async def _pull(self, link: Link, task: Task) -> None:
        image = task.spec.image or ""
        self._core.apply(task.id, Step(f"pulling {image}"), f"image not on {link.node.name}")
        async with link.stream(link.runtime.pull(image)) as stream:
            reading, stopping = asyncio.create_task(_drain(stream)), asyncio.create_task(self._stopped(task.id))
            try:
                await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    raise RuntimeFailed("stopped before it started")
                words = reading.result()
            finally:
                reading.cancel()
                stopping.cancel()
                await asyncio.gather(reading, stopping, return_exceptions=True)
        if stream.exit_code != 0:
            why = link.runtime.complaint(words.decode("utf-8", "replace"))
            raise RuntimeFailed(f"image {image} is not on {link.node.name} and cannot be pulled: {why}")

    async def _stopped(self, task_id: str) -> None:
        """Wait until somebody wants the task to end."""
        with self._core.hub.listen() as news:
            while (task := self._core.tasks.get(task_id)) and not task.stop:
                await anext(news)

    async def _answer(self, task_id: str) -> None:
        """Wait until the node has said what became of a launch, or for ANSWER_WITHIN."""
        core = self._core
        task = core.tasks.get(task_id)
        link = core.links.get(task.target.node) if task else None
        if link is None:
            return
        with core.hub.listen() as news:
            look = self._spawn(_look(link, task_id))
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    while task_id in core.tasks and isinstance(core.tasks[task_id].status, Assigning):
                        await anext(news)
            except TimeoutError:
                look.cancel()

    def _relaunch(self, task: Task) -> None:
        """Launch again a task that the node knows nothing of: under the lock, its name tells what became of it."""
        if task.id not in self._core.launching:
            self._core.launching.add(task.id)
            self._spawn(self._again(task.id))

    async def _again(self, task_id: str) -> None:
        try:
            await self._launch(task_id)
        except Held as error:
            self._settle(task_id, LaunchFailed(str(error)), "launched again, refused")
        except AgentlessError as error:
            _log.warning("task %s: launching it again: %s", task_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _drain(stream: Stream) -> bytes:
    """Read to the end; gives the last words."""
    words = b""
    async for _, data in stream:
        words = (words + data)[-4000:]
    return words


async def _look(link: Link, task: str) -> None:
    await link.ready()
    try:
        await link.look(task)
    except AgentlessError as error:
        _log.info("%s: looking for %s: %s", link.node.name, task, error)
