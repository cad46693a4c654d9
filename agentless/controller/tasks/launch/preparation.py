"""Prepares a node for a launch: the image, and the uploaded files."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from agentless.controller.envs.moves import Moves
from agentless.controller.files.artifacts import Artifacts
from agentless.controller.files.uploads import Uploads
from agentless.controller.nodes.cluster_link import TaskLink
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.carried_workflows import CarriedWorkflows
from agentless.errors import Held, NoAnswer, Refused, RuntimeFailed
from agentless.model.files.file_spec import Prepared
from agentless.model.images.env import EnvRef, is_ours, parse_ref
from agentless.model.images.transfer import Progress
from agentless.model.tasks.task import Assigning, Task
from agentless.model.tasks.task_event import Step
from agentless.model.units import format_duration, format_size
from agentless.ports import Clock

TELL_EVERY = 2.0
"""Seconds between two progress events of an image; each is written to disk."""

_T = TypeVar("_T")


class Preparation:
    """Brings images and files to nodes, and reports progress. A stop of the task cancels it."""

    def __init__(
        self,
        ledger: Ledger,
        moves: Moves,
        uploads: Uploads,
        artifacts: Artifacts,
        carried: CarriedWorkflows,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._moves = moves
        self._uploads = uploads
        self._artifacts = artifacts
        self._carried = carried
        self._clock = clock

    async def files(self, link: TaskLink, task: Task) -> Prepared | None:
        """The image with the files of a task, None if it has none. Raises ImageMissing if its own image is missing."""
        if task.spec.job and isinstance(link, NodeLink) and self._artifacts.has_source(task):
            waiting = self._artifacts.given_to(task, partial(self._tell, task.id))
            given = await self._unless_stopped(task, waiting)
            task = replace(task, spec=replace(task.spec, uploads=(*task.spec.uploads, *given)))
        if not task.spec.uploads:
            return None
        work = self._uploads.prepare(link, task, lambda words: self._tell(task.id, words))
        return await self._unless_stopped(task, work)

    def labels(self, task: Task) -> dict[str, str]:
        """More labels for its container, if it is launched now."""
        return self._carried.labels(task)

    def forget_files(self, link: TaskLink) -> None:
        """Check the files on this node or cluster again before the next launch."""
        self._uploads.forget(link)

    async def provide(self, link: NodeLink, task: Task) -> None:
        """Bring the image to the node. Images of envs come from another node, never from a registry."""
        spec = task.spec
        if spec.container is not None and spec.image_id is not None:
            await self._bring(link, task, parse_ref(spec.container), spec.image_id)
        elif is_ours(spec.image or ""):
            raise RuntimeFailed(
                f"{link.node.name} has no image {spec.image}; agentless does not pull images of envs; submit with "
                "--container NAME to copy it there"
            )
        elif spec.pull == "never":
            raise RuntimeFailed(
                f"{link.node.name} does not have image {spec.image}, and --pull is never; use --pull missing"
            )
        else:
            await self.pull(link, task, missing=True)

    async def pull(self, link: NodeLink, task: Task, *, missing: bool) -> None:
        """Have the node pull the image, unless it is that of an env; raises RuntimeFailed or NoAnswer.

        It may be there already if not `missing`.
        """
        image = task.spec.image or ""
        if is_ours(image):
            return
        why = f"image not on {link.node.name}" if missing else "--pull always"
        self._step(task.id, f"pulling {image}", why)
        await self._unless_stopped(task, link.pull(image, missing=missing))

    # ------------------------------------------------------------------ inside

    async def _bring(self, link: NodeLink, task: Task, ref: EnvRef, image: str) -> None:
        reported = 0.0

        def tell(progress: Progress) -> None:
            nonlocal reported
            now = self._clock.now()
            if now - reported >= TELL_EVERY:
                reported = now
                self._step(task.id, in_words(progress, ref), f"{ref} not on {link.node.name}")

        self._step(task.id, f"copying {ref} to {link.node.name}", f"{ref} not on {link.node.name}")
        try:
            sent = await self._unless_stopped(task, self._moves.bring(ref, image, link, tell))
        except NoAnswer as error:
            if link.online:  # it is the source that is silent, and here nothing has begun
                raise Held(f"cannot copy {ref} to {link.node.name}: {error}") from None
            self._step(task.id, f"{error}; retrying", "no answer")  # once the node has been looked at
            raise
        except Refused as error:
            raise RuntimeFailed(str(error)) from None  # waiting would not change that
        if sent.how != "current":
            words = f"copied {ref} to {link.node.name}: {format_size(sent.sent)} in {sent.seconds:.1f} s"
            self._step(task.id, words, f"sent from {sent.how}" if sent.how == "shared" else "sent")

    async def _unless_stopped(self, task: Task, work: Coroutine[Any, Any, _T]) -> _T:
        """Await the work; if the task is stopped meanwhile, cancel the work and raise RuntimeFailed."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self._stopped(task.id))
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise RuntimeFailed("stopped before it started")
            return doing.result()
        finally:
            doing.cancel()
            stopping.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)

    def _tell(self, task_id: str, words: str) -> None:
        task = self._tasks.live.get(task_id)
        if task and isinstance(task.status, Assigning):
            self._ledger.apply(task_id, Step(words), words)

    async def _stopped(self, task_id: str) -> None:
        """Wait until the task is stopped or gone."""
        tasks = self._tasks.live
        await self._ledger.until(lambda: task_id not in tasks or tasks[task_id].stop)

    def _step(self, task_id: str, words: str, cause: str) -> None:
        if task_id in self._tasks.live:
            self._ledger.apply(task_id, Step(words), cause)


def in_words(progress: Progress, ref: EnvRef) -> str:
    """Progress of an image in words: bytes, rate, time left."""
    begun = f"copying {ref} to {progress.node}: {progress.step}"
    if not progress.done:
        return begun
    of = f" of {format_size(progress.total)}" if progress.total else ""
    rate = f", {format_size(int(progress.rate))}/s" if progress.rate else ""
    left = f", {format_duration(progress.eta)} left" if progress.eta is not None else ""
    return f"{begun}, {format_size(progress.done)}{of}{rate}{left}"
