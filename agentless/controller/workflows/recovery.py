"""Goes on with workflows of which only the labels on the nodes are left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentless.controller.in_thread import in_thread
from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.submit.request import Submit
from agentless.controller.tasks.recovery import Recovery
from agentless.controller.workflows.workflows import Workflows
from agentless.errors import AgentlessError, NotFound, Refused
from agentless.model.caller import Caller
from agentless.model.containers.claim import named_task
from agentless.model.containers.container import Container
from agentless.model.containers.job_id import job_number
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try, is_task_id, numbered
from agentless.model.view import LeftJobView, WorkflowLeftView, WorkflowStartView
from agentless.model.workflows.record import WorkflowRecord
from agentless.rules.workflows.carried import (
    HEAD,
    WAITING,
    Carried,
    digest,
    digest_of_jobs,
    has_signed,
    parse_head,
    unpack,
)
from agentless.rules.workflows.going_on import Candidate, Found, Known, Left, candidates, jobs_left
from agentless.rules.workflows.progress import missing
from agentless.stores.workflow_proof import WorkflowProof

_READ = 40
"""The most workflows of a node whose jobs are read: first those with a valid signature, of these those that go on."""
_AT_ONCE = 8
"""Containers in one question about jobs."""
_COPIES = 3
"""Containers without a signature that are asked for the same jobs: not all have what their head says."""

_log = logging.getLogger(__name__)


class WorkflowRecovery:
    """Shows what had not started, and submits what goes on."""

    def __init__(
        self, nodes: Nodes, workflows: Workflows, recovery: Recovery, ledger: Ledger, proof: WorkflowProof
    ) -> None:
        self._nodes = nodes
        self._workflows = workflows
        self._recovery = recovery
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._proof = proof
        self._proven: set[str] = set()
        """Containers whose task was seen not to have ended. What ends since then is known here."""

    async def offer(self, caller: Caller) -> list[WorkflowLeftView]:
        """The workflows of the caller with jobs that had not begun, as if all tasks on the nodes were recovered."""
        found, unread, stopped = await self._look(caller)
        offered = {task.id: task for task, _ in self._recovery.unremembered(caller).values()}
        self._proven |= {each.container for of in found for each, _ in self._current(of, offered).found if each.proves}
        views = [self._view(of, await self._left(of, offered, stopped)) for of in found]
        return [*(view for view in views if view.jobs), *self._unread(unread)]

    async def go_on(
        self, workflow: str, digest: str, jobs: Iterable[str], *, by_hand: bool, by: Caller
    ) -> WorkflowStartView:
        """Submit those of these jobs that go on, with `by_hand` also those that ask; all or none.

        Raises Refused if the workflow is not what the digest was made of.
        """
        every, _, stopped = await self._look(by)
        recorded = self._proof.stopped()
        found = [of for of in every if of.head.workflow == workflow]
        if not found:
            raise NotFound(f"no workflow {workflow[:40]!r} to go on with; to list them, run: agentless recover")
        of = next((each for each in found if each.digest == digest), None)
        if of is None:
            raise Refused(f"workflow {workflow} has changed since it was shown; run agentless recover again")
        allowed = {"goes_on", "ask"} if by_hand else {"goes_on"}
        wanted = set(jobs)
        left = [each for each in await self._left(of, {}, stopped) if each.decision in allowed and each.id in wanted]
        left = _with_what_they_require(left, wanted)
        if self._proof.stopped() != recorded:
            raise Refused(f"workflow {workflow} has changed since it was shown; run agentless recover again")
        if not left:
            raise Refused(f"no job of workflow {workflow} can go on; to see why, run: agentless recover")

        def record(_: Sequence[Task]) -> None:
            self._workflows.store.put(WorkflowRecord(workflow, of.head.name, of.carried.text))

        request = Submit(_specs(left), {}, by, owner=of.head.owner, ids=tuple(each.id for each in left), batch=workflow)
        return await self._workflows.submit(request, record)

    # ------------------------------------------------------------------ what is known

    async def _left(self, of: Candidate, offered: Mapping[str, Task], stopped: frozenset[str] | None) -> list[Left]:
        return await in_thread(jobs_left, self._current(of, offered), await self._known(of, offered, stopped))

    def _current(self, of: Candidate, offered: Mapping[str, Task]) -> Candidate:
        """The candidate, in which the containers that run are those of tasks here, or of those that are offered."""
        running = {task.container for task in (*self._tasks.live.values(), *offered.values()) if task.live}
        found = ((replace(each, runs=each.container in running | self._proven), said) for each, said in of.found)
        return replace(of, found=tuple(found))

    async def _known(self, of: Candidate, offered: Mapping[str, Task], stopped: frozenset[str] | None) -> Known:
        workflow, jobs = of.head.workflow, of.carried.jobs
        live = [task for task in (*self._tasks.live.values(), *offered.values()) if first_try(task.id) in jobs]
        every = [*self._tasks.history.batch(workflow), *live]
        known = {first_try(task.id) for task in every}
        running = {first_try(task.id) for task in live if task.live}
        running |= {first_try(e.task) for e, _ in of.found if e.container in self._proven} & known
        named = (named_task(each) or "" for link in self._nodes.every.values() for each in link.containers)
        if stopped is not None:
            last = {first_try(task.id): task.id for task in sorted(every, key=lambda one: one.attempt)}
            stopped |= {key for key, task in last.items() if numbered(task) in stopped}
            stopped |= await self._forgotten(jobs.keys() - known)
        return Known(frozenset(map(first_try, named)), frozenset(known), frozenset(running), stopped)

    async def _forgotten(self, jobs: Iterable[str]) -> set[str]:
        """Those that were ever dropped. Somebody's label may have very many: others have their turn in between."""
        found = set[str]()
        for number, each in enumerate(jobs):
            if self._ledger.was_forgotten(each):
                found.add(each)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    def _view(self, of: Candidate, left: Iterable[Left]) -> WorkflowLeftView:
        head = of.head
        return WorkflowLeftView(
            id=head.workflow,
            name=head.name,
            owner=head.owner,
            signed=of.signed,
            digest=of.digest,
            nodes=tuple(sorted({each.node for each, _ in of.found})),
            jobs=tuple(
                LeftJobView(each.id, each.spec.job.name if each.spec.job else "", each.decision, each.why, each.spec)
                for each in left
            ),
        )

    def _unread(self, heads: Iterable[Found]) -> list[WorkflowLeftView]:
        """Workflows whose heads tell of jobs that had not begun, and of which nothing can be read."""
        newest = {each.head.workflow: each for each in sorted(heads, key=lambda one: (one.signed, one.head.at))}
        shown = sorted(newest.items(), key=lambda one: (not one[1].signed, one[0]))[:_READ]
        return [
            WorkflowLeftView(
                id=workflow,
                name=each.head.name,
                owner=each.head.owner,
                signed=each.signed,
                digest=digest(each.head),
                nodes=(each.node,),
                jobs=(),
                unread=left,
            )
            for workflow, each in shown
            if (left := each.head.states.count(WAITING)) and self._is_missing(workflow)
        ]

    def _is_missing(self, workflow: str) -> bool:
        tasks = self._workflows.tasks_of(workflow)
        return not tasks or missing(tasks.values()) > 0

    # ------------------------------------------------------------------ asking the nodes

    async def _look(self, caller: Caller) -> tuple[list[Candidate], list[Found], frozenset[str] | None]:
        """The workflows in the labels; the heads of those of which no job can be read; and the jobs that were stopped.

        That is None if a label knows of more stops.
        """
        await self._nodes.heard()
        owners = (self._tasks.owner, caller.name)
        clusters = [link for link in self._nodes.clusters.values() if link.silence is None]
        online = [link for link in self._nodes.links.values() if link.online]
        places: list[TaskLink] = [*online, *clusters]
        answers = await asyncio.gather(*(self._read(link, owners) for link in places))
        found = [each for some, _ in answers for each in some]
        carried = {key: jobs for _, some in answers for key, jobs in some.items()}
        mine = [each for each in found if each.head.owner in owners]
        read = await in_thread(candidates, mine, carried)
        told = max((each.head.stops for each in found if each.signed), default=0)
        stopped = self._proof.stopped() if told <= (self._proof.stops or 0) else None
        known = {of.head.workflow for of in read}
        return read, [each for each in mine if each.head.workflow not in known], stopped

    async def _read(self, link: TaskLink, owners: Sequence[str]) -> tuple[list[Found], dict[str, Carried]]:
        """What the containers of a node carry. What it does not tell is not known."""
        try:
            heads = await self._heads(link)
            found = [each for each in heads if each.signed or each.head.owner in owners]
            return found, await self._jobs(link, (each for each in found if each.head.owner in owners))
        except AgentlessError as error:
            _log.warning("%s: reading workflows: %s", link.node.name, error)
            return [], {}

    async def _heads(self, link: TaskLink) -> list[Found]:
        if isinstance(link, ClusterLink):
            there = {job.id: job for job in await link.carried()}
            labels = {key: job.labels[HEAD] for key, job in there.items() if HEAD in job.labels}
        else:
            answer = await link.run(link.runtime.carried())
            there = {each.id: each for each in link.containers}
            labels = await in_thread(link.runtime.parse_carried, answer)
        return await in_thread(self._signed, link, labels, there)

    def _signed(self, link: TaskLink, labels: Mapping[str, str], there: Mapping[str, Container]) -> list[Found]:
        key = self._proof.key()
        found = (self._found(link, there[each], label, key) for each, label in labels.items() if each in there)
        return [each for each in found if each]

    def _found(self, link: TaskLink, container: Container, label: str, key: bytes | None) -> Found | None:
        head, task = parse_head(label), named_task(container) or ""
        if head is None or not is_task_id(task):
            return None
        signed = has_signed(key, label, container.labels, link.node.name)
        # What a cluster has in its queue has not ended, either.
        began = container.here(container.created_at if job_number(container.id) else container.started_at)
        again = container.finished_at is not None
        return Found(head, task, link.node.name, container.id, signed, container.live, again, began)

    async def _jobs(self, link: TaskLink, found: Iterable[Found]) -> dict[str, Carried]:
        """By their digests, the jobs that are on these containers."""
        groups: dict[tuple[bool, str], list[Found]] = {}
        for each in sorted(found, key=lambda one: -one.head.at):
            groups.setdefault((not each.signed, each.head.jobs), []).append(each)
        # The newest head comes first. Short workflows that have ended must not hide one that has not.
        ask = sorted(
            groups.items(),
            key=lambda one: (one[0][0], WAITING not in one[1][0].head.states, not any(each.runs for each in one[1])),
        )[:_READ]
        wanted = [each.container for _, those in ask for each in those[:_COPIES]]
        digests = {digest for (_, digest), _ in ask}
        carried = dict[str, Carried]()
        for first in range(0, len(wanted), _AT_ONCE):
            answer = await link.run(link.runtime.carried_jobs(wanted[first : first + _AT_ONCE]))
            for label in link.runtime.parse_carried(answer).values():
                key_of = digest_of_jobs(label)
                if key_of in digests and key_of not in carried and (jobs := await in_thread(unpack, label)):
                    carried[key_of] = jobs
        return carried


def _with_what_they_require(left: Sequence[Left], wanted: Iterable[str]) -> list[Left]:
    """Those that require no job which is left out, with all members of a gang."""
    found, here = list[Left](), {each.id for each in left}
    out = set(wanted) - here
    for each in left:
        members = each.spec.gang.members if each.spec.gang else ()
        if not here.issuperset(members) or any(one.on in out for one in each.requires):
            out.add(each.id)
        else:
            found.append(each)
    return found


def _specs(left: Sequence[Left]) -> tuple[TaskSpec, ...]:
    """Their specs, which name each other by their numbers, as a request does."""
    numbers = {each.id: f"#{number}" for number, each in enumerate(left, 1)}
    return tuple(
        replace(
            each.spec,
            terms=replace(
                each.spec.terms,
                requires=tuple(replace(one, on=numbers.get(one.on, one.on)) for one in each.requires),
                if_impossible=each.spec.terms.if_impossible if each.requires else None,
            ),
        )
        for each in left
    )
