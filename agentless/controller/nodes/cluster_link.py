"""One cluster with a queue of its own, as the rest of the controller has it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from agentless.controller.nodes.link.link import Link, LinkListener
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, RuntimeFailed, Timeout, TooMuch, Unreachable
from agentless.model.command import Command, Result, join_sections, split_sections
from agentless.model.containers.claim import named_task
from agentless.model.containers.container import Container
from agentless.model.containers.launch import Launch
from agentless.model.files.file_spec import Prepared
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import EngineFacts, NodeConfig, with_node
from agentless.model.tasks.task import Placement, Task
from agentless.model.view import ClusterView
from agentless.ports import Clock, ClusterEngine, Engine
from agentless.remote.session import Session
from agentless.rules.views.publish import cluster_view

LOOK_EVERY = 2.0
"""Seconds between two looks at a cluster on which tasks are live, if it answers at once."""
SOON = 0.3
"""Seconds from a command to the next look."""
IDLE_EVERY = 30.0
"""Seconds between two looks at one that has nothing of ours."""
NODES_EVERY = 30.0
"""Seconds between two looks at its compute nodes."""
NODES_SOON = 5.0
"""The same once a job of ours has started or ended, which changes what is free."""
RESTS = 10.0
"""How many times as long as a look took it is left alone: a cluster is asked by many."""
MOST_REST = 60.0
"""Seconds that it is left alone at most: a look that took long may have met a daemon that hung just then."""
SILENT_EVERY = 10.0
"""Seconds between two looks at one whose Slurm does not answer."""
LATE = 10.0
"""Seconds without an answer after which what is known is shown as old, while it is still waited for."""
SILENT = "Slurm does not answer"
LOOK_WITHIN = 60.0
NODES_WITHIN = 30.0
ANSWER_WITHIN = 5.0
"""Seconds for which a person waits for a cluster: then there are the nodes of its last look, and a stop goes on."""
_log = logging.getLogger(__name__)


class ClusterLink(Link):
    """The login node of a cluster: it is asked for all our jobs at once, again and again.

    `inside` are its compute nodes as of `inside_at` (Unix seconds), None before the first answer.
    """

    def __init__(
        self, node: NodeConfig, session: Session, runtime: ClusterEngine, clock: Clock, listener: LinkListener
    ) -> None:
        super().__init__(node, session, clock, listener)
        self.runtime = runtime
        self.inside: tuple[ClusterNode, ...] = ()
        self.inside_at: float | None = None
        self._asking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._was_heard = False  # at the last look
        self._has_read_scripts = False
        self._asked = list[float]()  # when that was asked which it has not answered yet

    def launch(
        self, task: Task, placement: Placement, secrets: Mapping[str, str], prepared: Prepared | None = None
    ) -> Launch:
        """The launch of a task here."""
        return Launch(task, placement, secrets=secrets, prepared=prepared, engine=self.observation.engine)

    def runtime_of(self, task: Task) -> Engine:
        """What runs this task here."""
        del task
        return self.runtime

    async def run(self, command: Command, heard: Callable[[bytes], None] | None = None) -> Result:
        """Run a short command, and look soon at what it has changed."""
        try:
            return await super().run(command, heard)
        finally:
            self._wake.set()

    async def nodes(self, *, within: float = NODES_WITHIN) -> tuple[ClusterNode, ...]:
        """Ask for its compute nodes, and keep the answer as `inside`."""
        asked = replace(self.runtime.nodes(), timeout=within)
        with self._waiting():
            answer = await super().run(asked)
        self.inside = self.runtime.parse_nodes(answer)
        self.inside_at = self.cache.now()
        return self.inside

    @property
    def outdated(self) -> str | None:
        """Why what is known of its jobs may not be so any more: also while an answer is late."""
        engine, is_late = self.observation.engine, any(self.cache.now() - asked > LATE for asked in self._asked)
        if is_late and self.online and (engine is None or engine.containers is not None):
            return SILENT
        return self.silence

    def view(self, tasks: int) -> ClusterView:
        """Its published value, with so many live tasks."""
        return cluster_view(self.node, self.inside, self.inside_at, self.outdated, online=self.online, tasks=tasks)

    async def carried(self) -> tuple[Container, ...]:
        """Our jobs with the labels that their scripts carry; those of which no script is left are not among them.

        Also those that only the accounting knows: looks forget them. Raises Unreachable if Slurm does not answer.
        """
        async with self._asking:
            engine = await self._listed(accounting=True)
        if engine.containers is None:
            raise Unreachable(f"{self.node.name}: {engine.error}")
        return tuple((await self._carried(engine.containers)).values())

    async def look(self, task: str, runtime: Engine | None = None) -> None:
        """Ask for the job of one task, and report it as present or absent."""
        del runtime
        async with self._asking:
            self.cache.check_online()
            asked = self.cache.now()
            result = await self.session.run(self.runtime.containers(task))
            self.runtime.check(result)
            found = self.runtime.parse_containers(result, self.cache.clock_ahead)
            self.cache.listed()
            self.cache.saw(task, found, asked)

    async def refresh(self) -> None:
        """Ask for all our jobs in one round trip; the accounting only where a job is missed, since it may be slow.

        It is also asked after a silence. The scripts are read once: the state may be older than a job, and then its
        task is only there.
        """
        async with self._asking:
            live = {job.id for job in self.containers if job.live}
            asked, engine = self.cache.now(), await self._listed(accounting=not self._was_heard)
            if engine.containers is not None and not self._was_heard and not self._has_read_scripts:
                engine = replace(engine, containers=await self._whole(engine.containers))
            missed = engine.containers is not None and not live.issubset(job.id for job in engine.containers)
            if missed and self._was_heard:
                asked, engine = self.cache.now(), await self._listed(accounting=True)
            self._was_heard = engine.containers is not None
            self.cache.observe(Observation(error=None, engine=engine))
            if engine.containers is not None:
                self.cache.saw_all(asked, blind=False)

    # ------------------------------------------------------------------ inside

    async def _whole(self, jobs: tuple[Container, ...]) -> tuple[Container, ...]:
        """The jobs, those that we have signed with all of their labels."""
        try:
            carried = await self._carried(jobs) if any(job.signed for job in jobs) else {}
        except AgentlessError as error:
            _log.warning("%s: reading the scripts of its jobs: %s", self.node.name, error)
            return jobs
        self._has_read_scripts = True
        wholes = ((job, carried.get(job.id)) for job in jobs)
        return tuple(whole if job.signed and whole and whole.signed else job for job, whole in wholes)

    async def _carried(self, jobs: Iterable[Container]) -> dict[str, Container]:
        """Those of these jobs that have a script, by id, with its labels."""
        carried = self.runtime.parse_scripts(await self.collect(self.runtime.scripts()))
        named = ((job, carried.get(named_task(job) or "")) for job in jobs)
        return {job.id: self.runtime.with_labels(job, labels) for job, labels in named if labels}

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Inside, an answer is waited for."""
        self._asked.append(asked := self.cache.now())
        try:
            yield
        finally:
            self._asked.remove(asked)

    async def _listed(self, *, accounting: bool) -> EngineFacts:
        asked, sections = self.cache.now(), self.runtime.facts(accounting=accounting)
        try:
            with self._waiting():
                result = await self.session.run(Command(join_sections(sections), timeout=LOOK_WITHIN))
        except Timeout:
            return EngineFacts(error=SILENT)
        answer = split_sections(result.stdout)
        if len(answer) < len(sections) and (said := result.err.strip()):
            raise Unreachable(with_node(self.node.name, self.runtime.complaint(said)))
        return self.runtime.parse_facts(answer, asked, self.cache.now())

    async def _greet(self) -> None:
        await self.refresh()

    async def _attend(self) -> None:
        time, rest, nodes_rest, hurried = asyncio.get_running_loop().time, 0.0, 0.0, 0.0
        nodes_at = busy_at = float("-inf")
        ran = frozenset[str]()
        while True:
            runs = frozenset(job.id for job in self.containers if job.live and job.state != "queued")
            if time() - nodes_at > max(NODES_EVERY if runs == ran else NODES_SOON, nodes_rest):
                began = time()
                with contextlib.suppress(RuntimeFailed, Timeout, TooMuch):  # its jobs matter more
                    await self.nodes()
                nodes_at, ran = time(), runs
                nodes_rest = min(RESTS * (nodes_at - began), MOST_REST)
            busy_at = time() if any(job.live for job in self.containers) else busy_at
            every = LOOK_EVERY if time() - busy_at < IDLE_EVERY else IDLE_EVERY  # an empty answer may be wrong
            every = every if self.silence is None else SILENT_EVERY
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(every, rest)):
                    await self._wake.wait()
            if self._wake.is_set():
                self._wake.clear()
                # One command is looked at soon, even by a slow cluster; many together are not.
                await asyncio.sleep(max(SOON, hurried + rest - time()))
                hurried = time()
            began = time()
            await self.refresh()
            # How long Slurm did not answer is no measure of its load.
            rest = min(RESTS * (time() - began), MOST_REST) if self.silence is None else SILENT_EVERY


TaskLink = NodeLink | ClusterLink
"""The link to where a task is."""
