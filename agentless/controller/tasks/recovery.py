"""Takes back tasks that the nodes carry and this controller does not remember."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.controller.envs.envs import Envs
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.views import TaskViews
from agentless.errors import Refused
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

    async def offer(self, caller: Caller) -> RecoveryView:
        """The tasks that the caller can take back, and the nodes that do not tell theirs."""
        await self._envs.look()
        found = self.unremembered(caller)
        return RecoveryView(
            tuple(self._views.seen_by(caller, task) for task, _ in found.values()),
            self._nodes.silent(),
            {key: task.spec for key, (task, _) in found.items()},
            {key: digest(container) for key, (_, container) in found.items()},
            self._envs.assumed(),
        )

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
        for name, link in self._nodes.links.items():
            for container in sorted(link.containers, key=lambda each: (each.live, each.created_at or 0.0)):
                claim = claim_of(container)
                if not claim or claim.owner not in (self._tasks.owner, caller.name) or not is_task_id(claim.task):
                    continue
                if self._tasks.knows(claim.task) or (claim.task in self._tasks.forgotten and not container.live):
                    continue
                task = task_of(container, name, self._clock.now())
                if task and (claim.task not in found or container.name == task.container_name):
                    found[claim.task] = task, container
        return dict(sorted(found.items()))
