"""Foreign processes on GPUs that tasks hold."""

from __future__ import annotations

from agentless.controller.state.ledger import Ledger
from agentless.model.nodes.cluster import Node
from agentless.rules.nodes.survey import describe


class Intruders:
    """Reports foreign processes that begin to use a GPU of a task."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def look(self, node: Node) -> None:
        """Update the intruders of the tasks on a node."""
        tasks = self._ledger.tasks
        for task in tasks.on_node(node.name):
            held = task.placement.gpu_uuids if task.placement else ()
            found = tuple(p for gpu in node.gpus if gpu.reading.uuid in held for p in gpu.intruders)
            known = {process.pid for process in tasks.intruders.pop(task.id, ())}
            if found:
                tasks.intruders[task.id] = found
            for process in found:
                if process.pid not in known:
                    number = next(gpu.reading.number for gpu in node.gpus if gpu.reading.uuid == process.gpu_uuid)
                    self._ledger.publish(task, "intruded", f"{describe(process)} uses GPU {number}")
