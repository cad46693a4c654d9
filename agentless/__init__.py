"""agentless: one big computer out of the GPU machines you can already ssh into.

Nothing runs on a node but SSH and Docker. Start reading at `docs/architecture.md`. The way of a submit through this
package is `cli/submit` → `client` → `controller/submit` → `rules/scheduling` → `engines/docker` → `remote`.
From Python it begins with `Cluster`, see `docs/python.md`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentless.api.batch import Batch
    from agentless.api.cluster import Cluster
    from agentless.api.task import Task
    from agentless.api.vps import Vps
    from agentless.api.workflow import Workflow, WorkflowJob
    from agentless.client.ssh.forwarded_port import ForwardedPort
    from agentless.errors import (
        AgentlessError,
        ControllerError,
        NoAnswer,
        NotFound,
        Refused,
        RuntimeFailed,
        StateError,
        Unreachable,
        UsageError,
    )
    from agentless.model.view import (
        CheckView,
        ClusterNodeView,
        ClusterView,
        EventView,
        ExplainView,
        GpuView,
        NodeView,
        ReservationView,
        ShareView,
        SnapshotView,
    )

__version__ = "0.1.0"

__all__ = [
    "AgentlessError",
    "Batch",
    "CheckView",
    "Cluster",
    "ClusterNodeView",
    "ClusterView",
    "ControllerError",
    "EventView",
    "ExplainView",
    "ForwardedPort",
    "GpuView",
    "NoAnswer",
    "NodeView",
    "NotFound",
    "Refused",
    "ReservationView",
    "RuntimeFailed",
    "ShareView",
    "SnapshotView",
    "StateError",
    "Task",
    "Unreachable",
    "UsageError",
    "Vps",
    "Workflow",
    "WorkflowJob",
]

_PLACES = (
    "agentless.errors",
    "agentless.model.view",
    "agentless.api.task",
    "agentless.api.vps",
    "agentless.api.workflow",
    "agentless.api.cluster",
)


def __getattr__(name: str) -> Any:
    """What is exported, imported when it is first asked for: a command pays for none of it."""
    if name in __all__:
        from importlib import import_module  # noqa: PLC0415 - likewise

        for place in _PLACES:
            if found := getattr(import_module(place), name, None):
                return found
    raise AttributeError(f"module 'agentless' has no attribute {name!r}")
