"""What the HTTP API serves: the parts of the controller, and who asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from agentless.controller.envs.builds import Builds
from agentless.controller.envs.envs import Envs
from agentless.controller.envs.moves import Moves
from agentless.controller.envs.prune import Prune
from agentless.controller.files.node_files import Files
from agentless.controller.files.uploads import Uploads
from agentless.controller.files.volumes import Volumes
from agentless.controller.nodes.exclusion import Exclusions
from agentless.controller.nodes.host_keys import HostKeys
from agentless.controller.nodes.registry import Core
from agentless.controller.scheduling.reservations import Reservations
from agentless.controller.scheduling.scheduler import Scheduler
from agentless.controller.tasks.commands import TaskCommands
from agentless.controller.tasks.exec import Terminals
from agentless.controller.tasks.submission import Submission
from agentless.controller.usage.samples import Samples
from agentless.controller.usage.usage import Usage
from agentless.model.owner import check_owner
from agentless.model.view import ControllerView, TaskView


def _asking(request: Request) -> str | None:
    """The owner who asks, None: the controller's own."""
    owner = request.headers.get("x-agentless-owner")
    return check_owner(owner, "$AGENTLESS_OWNER") if owner else None


Asking = Annotated[str | None, Depends(_asking)]


class Services(Protocol):
    """What the process around the API provides."""

    core: Core
    submission: Submission
    scheduler: Scheduler
    commands: TaskCommands
    exclusions: Exclusions
    reservations: Reservations
    samples: Samples
    usage: Usage
    host_keys: HostKeys
    terminals: Terminals
    files: Files
    envs: Envs
    builds: Builds
    moves: Moves
    prune: Prune
    uploads: Uploads
    volumes: Volumes
    leaving: bool

    def describe(self) -> ControllerView:
        """The controller itself."""

    async def metrics(self) -> Response:
        """What Prometheus is told."""

    def leave(self) -> None:
        """End the process, soon."""

    async def use_inventory(self, wanted: str | None, *, reading: bool) -> None:
        """Make sure that the inventory in force is the one wanted and current."""

    def warning(self) -> str | None:
        """What somebody ought to know who asks for anything."""


def seen_by(asking: str | None, view: TaskView) -> TaskView:
    """The view as the one who asks sees it: what is `mine` is theirs."""
    return view if asking is None else replace(view, mine=view.owner == asking)
