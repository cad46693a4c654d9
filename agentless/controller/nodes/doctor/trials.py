"""Starts a container on each free GPU of a node, and looks whether it sees that GPU and no other."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentless.controller.nodes.broken import broken
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.errors import AgentlessError, NoAnswer, RuntimeFailed
from agentless.formats import look_image
from agentless.gpus.vendors import GpuVendors
from agentless.model.caller import Caller
from agentless.model.command import Command, Result, join_sections, split_sections
from agentless.model.containers.launch import Launch
from agentless.model.nodes.check import Check, skipped
from agentless.model.nodes.checkup import Machine
from agentless.model.nodes.cluster import Gpu, Node
from agentless.model.nodes.trial import Proof, TrialAnswer
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Assigning, Placement, Task
from agentless.model.view import CheckView
from agentless.ports import Clock
from agentless.remote import checkup
from agentless.remote.worker import pieces
from agentless.render import Renderer
from agentless.rules.nodes.checks import trials
from agentless.rules.tasks.settings import with_shared
from agentless.rules.views.publish import check_view

LABEL = "agentless.doctor"
"""The label of such a container; its value is the mark of the trial, SECONDS-TOKEN.

Its others are those of a task, so that everybody sees its claim.
"""
ASKED_WITHIN = 60.0
"""Seconds for the node to say what it is."""
CLOSED_WITHIN = 30.0
"""Seconds that trials get to end when the controller does."""


@dataclass(frozen=True, slots=True)
class _Image:
    """The image of a trial, and what is run in it. `archive`: it has to be sent, and is removed afterwards."""

    name: str
    command: tuple[str, ...]
    entrypoint: str | None = None
    archive: bytes | None = None


class Trials:
    """Runs `agentless doctor --run`. What was begun comes to its end, whoever has gone meanwhile."""

    def __init__(self, nodes: Nodes, vendors: GpuVendors, renderer: Renderer, clock: Clock) -> None:
        self._nodes = nodes
        self._vendors = vendors
        self._renderer = renderer
        self._clock = clock
        self._locks: Mapping[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._under_way: set[asyncio.Task[list[Check]]] = set()

    async def run(self, nodes: Iterable[str], by: Caller) -> list[CheckView]:
        """Try the free GPUs of these nodes, or of all if none is named."""
        links, _ = self._nodes.places(nodes)
        found = await asyncio.gather(*(asyncio.shield(self._begin(link, by)) for link in links))
        return [check_view(link.node.name, each) for link, some in zip(links, found, strict=True) for each in some]

    async def close(self) -> None:
        """Wait for the trials that are under way: a script that is broken off leaves its container."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSED_WITHIN)

    def _begin(self, link: NodeLink, by: Caller) -> asyncio.Task[list[Check]]:
        trial = asyncio.create_task(self._guarded(link, by))
        self._under_way.add(trial)
        trial.add_done_callback(self._under_way.discard)
        return trial

    async def _guarded(self, link: NodeLink, by: Caller) -> list[Check]:
        async with self._locks[link.node.name]:
            try:
                return await self._try(link, by)
            except AgentlessError as error:
                return [skipped("run", str(error))]
            except Exception as error:  # noqa: BLE001
                return [broken("run", link.node.name, error)]

    async def _try(self, link: NodeLink, by: Caller) -> list[Check]:
        await link.ready()
        link.cache.check_online()
        await link.refresh()
        node = self._nodes.cluster([link.node.name]).nodes[link.node.name]
        if reason := trials.unfit(node):
            return [skipped("run", reason)]
        now = self._clock.now()
        places = [(gpu, trials.left_alone(node, gpu, by.name, now)) for gpu in node.gpus or (None,)]
        checks = [check for _, check in places if check]
        wanted = [gpu for gpu, check in places if check is None]
        took: list[float] = []
        if wanted:
            found = await self._try_gpus(link, node, wanted, by)
            took = [answer.took for _, answer in found if answer and answer.took is not None]
            checks += [check for check, _ in found]
        # As the GPUs are counted: a busy one stands among the others.
        names = [trials.name_of(gpu) for gpu in node.gpus] or [trials.name_of(None)]
        return [*sorted(checks, key=lambda check: names.index(check.name)), *trials.start(took)]

    async def _try_gpus(
        self, link: NodeLink, node: Node, wanted: Sequence[Gpu | None], by: Caller
    ) -> list[tuple[Check, TrialAnswer | None]]:
        """Start a container on each of them, by the first image in which something can be started at all."""
        sections = (*checkup.sections(self._renderer, ()), *self._vendors.checkup(self._renderer))
        began = self._clock.now()
        asked = split_sections((await link.run(Command(join_sections(sections), timeout=ASKED_WITHIN))).stdout)
        machine = checkup.parse(asked, (), began, self._clock.now()) or Machine()
        mark = f"{self._clock.now() + (machine.ahead or 0.0):.0f}-{secrets.token_hex(4)}"
        found: list[tuple[Check, TrialAnswer | None]] = []
        for image in await self._images(link, machine.architecture, mark):
            tasks = [self._task(node, gpu, image, by, mark) for gpu in wanted]
            answers = await self._run(link, node, tasks, image, mark)
            errors = [_error(link, task, answer) for task, answer in zip(tasks, answers, strict=True)]
            found = [
                (trials.verdict(gpu, answer, error, self._proof(gpu, answer, error, asked), image.name), answer)
                for gpu, answer, error in zip(wanted, answers, errors, strict=True)
            ]
            if None in errors or not any(isinstance(error, RuntimeFailed) for error in errors):
                break
        return found

    async def _images(self, link: NodeLink, machine: str, mark: str) -> list[_Image]:
        """The node's default image if it is there, and ours, which has no shell but needs none."""
        found: list[_Image] = []
        with contextlib.suppress(RuntimeFailed):
            commands = link.runtime.images
            names = {each.name for each in commands.parse_names(await link.run(commands.names()))}
            name = link.node.image or ""
            if {name, f"{name}:latest"} & names:
                found.append(_Image(name, ("-c", self._vendors.look(self._renderer)), "sh"))
        if archive := look_image.archive(machine, mark):
            found.append(_Image(look_image.name(mark), (look_image.PROGRAM,), archive=archive))
        if not found:
            raise RuntimeFailed(
                f"{link.node.name} does not have its default image, and agentless has none for its processor "
                f"({machine or 'unknown'}); set 'image:' in the inventory to an image that the node has"
            )
        return found

    def _task(self, node: Node, gpu: Gpu | None, image: _Image, by: Caller, mark: str) -> Task:
        """A task that no queue and no state has ever seen."""
        index = (gpu.reading.number,) if gpu else ()
        needs = Needs(gpus=len(index), nodes=(node.name,), indices=index)
        spec = TaskSpec(image.command, image=image.name, needs=needs, labels={LABEL: mark})
        # The other settings of the node come with the launch, as for a task.
        spec = with_shared(spec, node.config.shared_dir)
        uuids = (gpu.reading.uuid,) if gpu else ()
        parents = (gpu.reading.parent,) if gpu and gpu.reading.parent else ()
        vendor = gpu.reading.vendor if gpu else None
        placement = Placement(node.name, index, uuids, vendor=vendor, parents=parents)
        now = self._clock.now()
        return Task(
            id=f"doctor-{secrets.token_hex(4)}",
            spec=spec,
            batch="",
            owner=by.name,
            created_at=now,
            status=Assigning(placement, now),
        )

    async def _run(
        self, link: NodeLink, node: Node, tasks: Sequence[Task], image: _Image, mark: str
    ) -> Sequence[TrialAnswer | None]:
        launches = [
            Launch(task, task.placement, engine=node.observation.engine, entrypoint=image.entrypoint)
            for task in tasks
            if task.placement
        ]
        sent, label = image.name if image.archive else None, f"{LABEL}={mark}"
        command = link.runtime.trial(launches, label, sent)
        try:
            answers = link.runtime.parse_trial(await link.session.feed(command, pieces(image.archive or b"")))
        except NoAnswer:
            # The script may have been ended in the middle.
            with contextlib.suppress(AgentlessError):
                await link.run(link.runtime.clear_trial(label, sent))
            raise
        return [*answers, *([None] * (len(tasks) - len(answers)))]

    def _proof(
        self, gpu: Gpu | None, answer: TrialAnswer | None, error: AgentlessError | None, asked: Mapping[str, Result]
    ) -> Proof | None:
        if gpu is None or answer is None or error is not None:
            return None
        return self._vendors.proof(answer.saw, gpu.reading, asked)


def _error(link: NodeLink, task: Task, answer: TrialAnswer | None) -> AgentlessError | None:
    """Why a container did not start."""
    if answer is None:
        return None
    try:
        link.runtime.parse_launch(task, answer.launch)
    except AgentlessError as error:
        return error
    return None
