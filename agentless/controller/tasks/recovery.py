"""Takes back tasks that the nodes carry and this controller does not remember."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from agentless.controller.envs.envs import Envs
from agentless.controller.nodes.registry import FIRST_ANSWER, Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.views import TaskViews
from agentless.errors import AgentlessError, Refused
from agentless.model.caller import Caller
from agentless.model.containers.claim import claim_of, task_of
from agentless.model.containers.container import Container
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import is_task_id
from agentless.model.view import RecoveryView
from agentless.ports import Clock
from agentless.rules.tasks.identity import digest


class Recovery:
    """Shows the tasks that can be taken back, and takes back those that a person has confirmed."""

    def __init__(self, nodes: Nodes, envs: Envs, ledger: Ledger, views: TaskViews, clock: Clock) -> None:
        self._nodes = nodes
        self._envs = envs
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._views = views
        self._clock = clock
        self._jobs: dict[str, tuple[Container, ...]] = {}
        """Those of each cluster at the last look, with the labels that their scripts carry."""

    async def offer(self, caller: Caller) -> RecoveryView:
        """The tasks that the caller can take back, and the nodes that do not tell theirs."""
        await self._envs.look()
        unread = await self.look()
        found = self.unremembered(caller)
        return RecoveryView(
            tuple(self._views.seen_by(caller, task) for task, _ in found.values()),
            {**unread, **self._nodes.silent()},
            {key: task.spec for key, (task, _) in found.items()},
            {key: digest(container) for key, (_, container) in found.items()},
            self._envs.assumed(),
        )

    async def look(self) -> dict[str, str]:
        """Read the tasks of jobs from their scripts; gives the clusters whose scripts cannot be read, and why."""
        await asyncio.gather(*(link.ready(within=FIRST_ANSWER) for link in self._nodes.clusters.values()))
        links = {name: link for name, link in self._nodes.clusters.items() if link.silence is None}
        answers = await asyncio.gather(*(link.carried() for link in links.values()), return_exceptions=True)
        unread = dict[str, str]()
        for name, answer in zip(links, answers, strict=True):
            if isinstance(answer, AgentlessError):
                unread[name] = str(answer).removeprefix(f"{name}: ")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._jobs[name] = answer
        return unread

    def recover(self, tasks: Iterable[str], digests: Mapping[str, str], *, by: Caller) -> list[Task]:
        """Remember these tasks; raises Refused if one is not what its digest was made of any more."""
        found = self.unremembered(by)
        wanted = [found[key][0] for key in dict.fromkeys(tasks) if key in found]
        for task in wanted:
            if digests.get(task.id) not in (None, digest(found[task.id][1])):
                raise Refused(f"task {task.id} has changed since it was shown; run agentless recover again")
        for task in wanted:
            self._ledger.adopt(task, f"agentless recover, by {by}")
        return wanted

    def unremembered(self, caller: Caller) -> dict[str, tuple[Task, Container]]:
        """Tasks on nodes that are unknown here, of this controller's owner and of the caller.

        Containers that this controller has signed are adopted as soon as they are seen. After the state was lost, the
        key is a new one: the labels prove nothing then, so a person has to confirm them.
        """
        found: dict[str, tuple[Task, Container]] = {}
        seen = {name: link.containers for name, link in self._nodes.links.items()}
        jobs = {name: jobs for name, jobs in self._jobs.items() if name in self._nodes.clusters}
        for name, containers in {**seen, **jobs}.items():
            for container in sorted(containers, key=lambda each: (each.live, each.created_at or 0.0)):
                claim = claim_of(container)
                if not claim or claim.owner not in (self._tasks.owner, caller.name) or not is_task_id(claim.task):
                    continue
                if self._tasks.knows(claim.task) or (claim.task in self._tasks.forgotten and not container.live):
                    continue
                task = task_of(container, name, self._clock.now())
                before = found.get(claim.task)
                if task and (before is None or _rank(task, container) >= max((True, False), _rank(*before))):
                    found[claim.task] = task, container
        return dict(sorted(found.items()))


def _rank(task: Task, container: Container) -> tuple[bool, bool]:
    """Whether the container has the name of the task, and is where it was to run: clusters may have one login."""
    return container.name == task.container_name, task.node in task.spec.needs.nodes
