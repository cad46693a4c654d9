"""From a placed task to a running container: launch it, and find out when the answer got lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agentless.controller.envs.moves import Moves
from agentless.controller.files.uploads import Uploads
from agentless.controller.nodes.connection import Link
from agentless.controller.nodes.registry import Core
from agentless.controller.state.group_commit import Together
from agentless.controller.tasks.launch_scripts import Launches
from agentless.errors import (
    AgentlessError,
    FilesMissing,
    Held,
    IllegalMove,
    ImageMissing,
    NoAnswer,
    NodeBroken,
    NodeUnfit,
    Refused,
    RuntimeFailed,
    TemplateError,
    Unseen,
)
from agentless.model.images.env import EnvRef, is_ours, parse_ref
from agentless.model.images.transfer import Progress
from agentless.model.tasks.event import Event, Launched, LaunchFailed, Step, Unplaced
from agentless.model.tasks.launch import Launch
from agentless.model.tasks.task import Assigning, Lost, Pending, Task
from agentless.model.units import format_duration, format_size
from agentless.ports import Engine
from agentless.rules.explain.obstacles import never
from agentless.rules.tasks.reconcile import LAUNCH_BOUND

ANSWER_WITHIN = 15.0
"""Seconds a submit waits for the truth after the answer to its launch was lost."""

TELL_EVERY = 2.0
"""Seconds between two steps that tell how far an image has come: each is an event, and on disk."""

Elsewhere = Callable[[str], bool]
"""Gives a task that a node could not start another place, and says whether there was one."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Launcher:
    """Starts tasks that are placed, and finds out what became of a start when the answer got lost."""

    def __init__(self, core: Core, moves: Moves, uploads: Uploads) -> None:
        self._core = core
        self._moves = moves
        self._uploads = uploads
        self._together = Together(core)
        self._launches: defaultdict[str, Launches] = defaultdict(Launches)
        self._background: set[asyncio.Task[None]] = set()
        core.relaunch = self._relaunch

    async def first(self, task_id: str, elsewhere: Elsewhere) -> None:
        """The launch that somebody waits for. Raises Refused when there is nothing left of the task, or NoAnswer."""
        # Shielded: a client that goes away must not leave a launch half done.
        await asyncio.shield(self._spawn(self._first(task_id, elsewhere)))

    def begin(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch a task whose turn it is."""
        self._spawn(self._next(task_id, elsewhere))

    async def hear_of(self, task_id: str) -> None:
        """Wait until the node has said what became of a launch, or for ANSWER_WITHIN."""
        core = self._core
        task = core.tasks.get(task_id)
        link = core.links.get(task.node or "") if task else None
        if task is None or link is None:
            return

        def is_settled() -> bool:
            return task_id not in core.tasks or not isinstance(core.tasks[task_id].status, Assigning)

        look = self._spawn(_look(link, task_id, link.runtime_of(task)))
        await core.hub.until(is_settled, ANSWER_WITHIN)
        if not is_settled():
            look.cancel()

    # ------------------------------------------------------------------ inside

    async def _first(self, task_id: str, elsewhere: Elsewhere) -> None:
        try:
            await self._somewhere(task_id, elsewhere)
        except Refused as error:
            task = self._core.tasks.get(task_id)
            if task is None or task.spec.terms.wait_for == 0:
                if task:
                    self._core.forget(task, "refused", str(error))
                raise
            self._refused(task, error)

    async def _next(self, task_id: str, elsewhere: Elsewhere) -> None:
        try:
            await self._somewhere(task_id, elsewhere)
        except Refused as error:
            if task := self._core.tasks.get(task_id):
                self._refused(task, error)
        except AgentlessError as error:
            _log.warning("task %s: launching it: %s", task_id, error)

    async def _somewhere(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch on the node that was chosen, and if that cannot start anything, on another one while there is one.

        No node is tried twice: each that fails is degraded. That costs a task none of its tries.
        """
        while True:
            try:
                await self._launch(task_id)
            except (NodeBroken, NodeUnfit) as error:
                task = self._core.tasks.get(task_id)
                if task is None or task.stop:
                    raise
                unfit = task.node if isinstance(error, NodeUnfit) else None
                event = Unplaced(str(error), at_once=True, unfit=unfit)
                self._core.apply(task_id, event, f"{task.node} could not start it")
                # No await before this: the queue would give it a place, too.
                if not elsewhere(task_id):
                    raise
            else:
                return

    def _refused(self, task: Task, error: Refused) -> None:
        """It is certain that no launch has started a task, or will: it waits again, if it is willing to."""
        if isinstance(task.status, Pending):
            return
        over = task.stop or task.spec.terms.wait_for == 0
        event = LaunchFailed(str(error)) if over else Unplaced(str(error))
        self._core.apply(task.id, event, f"{task.node} refused it")

    async def _launch(self, task_id: str) -> None:
        """Launch, pulling the image first if the node lacks it. Raises a kind of Refused, or NoAnswer.

        Whatever it waits for, the task may have been removed meanwhile: then there is nothing left to say of it.
        """
        core = self._core
        task = core.tasks.get(task_id)
        if not task:
            core.launching.discard(task_id)
            return
        core.launching.add(task_id)
        try:
            link = core.link(task.node or "")
            if task.spec.pull == "always":
                await self._pull(link, task, missing=False)
            try:
                container = await self._try(link, task)
            except FilesMissing:
                self._uploads.forget(link)
                container = await self._try(link, task)
            except ImageMissing:
                await self._provide(link, task)
                container = await self._try(link, task)
            link.succeeded(task)
            await self._answered(link, task, container)
        except NodeBroken as error:
            link.failed(task, error)
            raise
        except NodeUnfit as error:
            if self._is_unfit_everywhere(task):
                self._settle(task_id, LaunchFailed(str(error)), f"the launch on {task.node} failed")
            else:
                raise
        except (RuntimeFailed, TemplateError) as error:
            self._settle(task_id, LaunchFailed(str(error)), f"the launch on {task.node} failed")
        finally:
            core.launching.discard(task_id)
        core.catch_up(task_id)

    def _is_unfit_everywhere(self, task: Task) -> bool:
        """Whether no other node will ever do than the one that cannot start it."""
        rest = task.spec.without(task.node or "")
        return never(self._core.cluster(), rest, task.owner) is not None

    async def _answered(self, link: Link, task: Task, container: str) -> None:
        program = "systemd-run" if task.spec.on_node_itself else "docker run"
        try:
            await self._together.apply(task.id, Launched(container), f"{program} on {link.node.name} answered")
        except IllegalMove as error:
            # No refusal of the node: the task was seen there before the answer came, and is what it was seen to be.
            _log.info("task %s: %s", task.id, error)

    def _settle(self, task_id: str, event: Event, cause: str) -> None:
        if task_id in self._core.tasks:
            self._core.apply(task_id, event, cause)

    async def _try(self, link: Link, task: Task) -> str:
        if task.placement is None:
            raise AssertionError("a task is placed before it is launched")
        prepared = None
        if task.spec.uploads:
            prepared = await self._unless_stopped(
                task, self._uploads.prepare(link, task, lambda words: self._tell(task.id, words))
            )
        runtime = link.runtime_of(task)
        secrets, engine = self._core.secrets.get(task.id), link.observation.engine
        launch = Launch(task, task.placement, secrets, prepared, engine)
        try:
            return runtime.parse_launch(task, await self._launches[link.node.name].run(link, runtime, launch))
        except Unseen:
            # The node is degraded before the task is put back: nothing goes there again.
            with contextlib.suppress(AgentlessError):
                await link.refresh()
            raise

    async def _provide(self, link: Link, task: Task) -> None:
        """Bring the image to the node. What is called like one of ours comes from a node that has it, never else."""
        spec = task.spec
        if spec.container is not None and spec.image_id is not None:
            await self._bring(link, task, parse_ref(spec.container), spec.image_id)
        elif is_ours(spec.image or ""):
            raise RuntimeFailed(
                f"{link.node.name} has no image {spec.image}, which is the name of an env's and is never pulled; "
                "submit with --container NAME, which brings it there"
            )
        elif spec.pull == "never":
            raise RuntimeFailed(f"image {spec.image} is not on {link.node.name}, and --pull never forbids to fetch it")
        else:
            await self._pull(link, task, missing=True)

    async def _bring(self, link: Link, task: Task, ref: EnvRef, image: str) -> None:
        told = 0.0

        def tell(progress: Progress) -> None:
            nonlocal told
            now = self._core.clock.now()
            if now - told >= TELL_EVERY:
                told = now
                self._settle(task.id, Step(in_words(progress, ref)), f"{ref} not on {link.node.name}")

        self._settle(task.id, Step(f"bringing {ref} to {link.node.name}"), f"{ref} not on {link.node.name}")
        try:
            sent = await self._unless_stopped(task, self._moves.bring(ref, image, link, tell))
        except NoAnswer as error:
            if link.online:  # it is the source that is silent, and here nothing has begun
                raise Held(f"{ref} cannot come to {link.node.name}: {error}") from None
            self._settle(task.id, Step(f"{error}; it is tried again"), "no answer")  # once the node has been looked at
            raise
        except Refused as error:
            raise RuntimeFailed(str(error)) from None  # waiting would not change that
        if sent.how != "current":
            words = f"{ref} came to {link.node.name}: {format_size(sent.sent)} in {sent.seconds:.1f} s"
            self._settle(task.id, Step(words), f"sent from {sent.how}" if sent.how == "shared" else "sent")

    async def _pull(self, link: Link, task: Task, *, missing: bool) -> None:
        image = task.spec.image or ""
        if is_ours(image):
            return
        self._settle(
            task.id, Step(f"pulling {image}"), f"image not on {link.node.name}" if missing else "--pull always"
        )
        await self._unless_stopped(task, link.pull(image, missing=missing))

    async def _unless_stopped(self, task: Task, work: Coroutine[Any, Any, _T]) -> _T:
        """What the work gives; raises RuntimeFailed, and ends it, as soon as somebody wants the task to end."""
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
        task = self._core.tasks.get(task_id)
        if task and isinstance(task.status, Assigning):
            self._core.apply(task_id, Step(words), words)

    async def _stopped(self, task_id: str) -> None:
        """Wait until somebody wants the task to end."""
        tasks = self._core.tasks
        await self._core.hub.until(lambda: task_id not in tasks or tasks[task_id].stop)

    def _relaunch(self, task: Task) -> None:
        """Launch again a task that the node knows nothing of: under the lock, its name tells what became of it."""
        if task.id not in self._core.launching:
            self._core.launching.add(task.id)
            self._spawn(self._again(task.id))

    async def _again(self, task_id: str) -> None:
        try:
            await self._launch(task_id)
        except (Held, NodeBroken, NodeUnfit) as error:
            # A launch before this one may still wait on the node: not before it is over may the task go elsewhere.
            task = self._core.tasks.get(task_id)
            since = task.status.since if task and isinstance(task.status, (Assigning, Lost)) else None
            if task and since and (task.spec.terms.wait_for == 0 or self._core.clock.now() - since > LAUNCH_BOUND):
                self._refused(task, error)
        except AgentlessError as error:
            _log.warning("task %s: launching it again: %s", task_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def in_words(progress: Progress, ref: EnvRef) -> str:
    """How far an image has come: what has, of how much, how fast, and how long it still takes."""
    begun = f"bringing {ref} to {progress.node}: {progress.step}"
    if not progress.done:
        return begun
    of = f" of {format_size(progress.total)}" if progress.total else ""
    rate = f", {format_size(int(progress.rate))}/s" if progress.rate else ""
    left = f", {format_duration(progress.eta)} left" if progress.eta is not None else ""
    return f"{begun}, {format_size(progress.done)}{of}{rate}{left}"


async def _look(link: Link, task: str, runtime: Engine) -> None:
    await link.ready()
    try:
        await link.look(task, runtime)
    except AgentlessError as error:
        _log.info("%s: looking for %s: %s", link.node.name, task, error)
