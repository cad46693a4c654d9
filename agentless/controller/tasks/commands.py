"""Commands on an existing task: pause, resume, wait, show its script."""

from __future__ import annotations

import asyncio
from functools import partial

from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.tasks import Tasks
from agentless.controller.tasks.containers import Containers
from agentless.errors import Refused
from agentless.model.tasks.task import FAILED, Task
from agentless.model.tasks.task_id import first_try, numbered
from agentless.model.view import ScriptView
from agentless.rules.nodes.cgroup_limits import why_lacking
from agentless.rules.views.publish import address_of


class TaskCommands:
    """Executes commands; each returns the task as it is when the node has answered."""

    def __init__(
        self,
        containers: Containers,
        nodes: Nodes,
        tasks: Tasks,
        lookup: Lookup,
        outputs: ExpectedOutputs,
        bus: EventBus,
    ) -> None:
        self._containers = containers
        self._nodes = nodes
        self._tasks = tasks
        self._lookup = lookup
        self._outputs = outputs
        self._bus = bus

    async def pause(self, reference: str) -> Task:
        """Freeze a running task; it keeps its GPUs and their memory."""
        return await self._toggle(reference, "running", "pause")

    async def resume(self, reference: str) -> Task:
        """Resume a paused task."""
        return await self._toggle(reference, "paused", "resume")

    def script(self, reference: str) -> ScriptView:
        """The launch script of a task; raises Refused if it has no node yet."""
        task = self._lookup.find(reference)
        if task.placement is None:
            raise Refused(
                f"task {task.id} is {task.state} and has no node yet; to see a script, run: agentless submit --dry-run"
            )
        if not self._tasks.knows(task.id):
            raise Refused(f"task {task.id} is foreign: this controller did not write its script")
        link = self._nodes.place(task.placement.node)
        launch = link.launch(task, task.placement, dict.fromkeys(task.spec.secret_env, ""))
        command = link.runtime_of(task).launches([launch])
        return ScriptView(link.node.name, address_of(link.node), command.text(masked=True))

    async def wait(self, reference: str, within: float | None = None) -> Task:
        """Wait until a task has ended and its outputs are here or cannot come, at most `within` seconds.

        Returns the task; of a retried one the last try. Of a gang all members are waited for, and the one is returned
        that has failed, if one has.
        """
        task = self._lookup.find(reference).id
        wanted = partial(self._lookup.find, reference if reference == numbered(task) else first_try(task))

        def is_over() -> bool:
            return not any(each.live or self._outputs.coming(each) for each in self._lookup.gang(wanted()))

        await self._bus.until(is_over, within)
        mates = self._lookup.gang(wanted())
        return next((each for each in mates if each.state in FAILED and len(mates) > 1), wanted())

    # ------------------------------------------------------------------ inside

    async def _toggle(self, reference: str, wanted: str, verb: str) -> Task:
        task = self._lookup.find(reference)
        await asyncio.gather(*(self._do(each, wanted, verb) for each in self._lookup.gang(task)))
        return self._lookup.task(task.id)

    async def _do(self, task: Task, wanted: str, verb: str) -> None:
        if task.state != wanted:
            raise Refused(f"task {task.id} is {task.state}: only a {wanted} task can be {verb}d")
        link = self._nodes.link_of(task)
        runtime, engine = link.runtime_of(task), link.observation.engine
        if verb == "pause" and not task.spec.on_node_itself and engine and "freezer" in engine.lacks:
            raise Refused(why_lacking(link.node, "freezer"))
        command = runtime.pause if verb == "pause" else runtime.resume
        await self._containers.do(link, task, command(task.container_ref))
