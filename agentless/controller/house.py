"""What the HTTP API serves: the parts of the controller, and who asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from agentless.controller.actions import Actions
from agentless.controller.core import Core
from agentless.controller.env_builds import Builds
from agentless.controller.env_moves import Moves
from agentless.controller.env_tidy import Tidy
from agentless.controller.envs import Envs
from agentless.controller.files import Files
from agentless.controller.gate import Gate
from agentless.controller.intake import Intake
from agentless.controller.reservations import Reservations
from agentless.controller.samples import Samples
from agentless.controller.scheduler import Scheduler
from agentless.controller.terminals import Terminals
from agentless.controller.trust import Trust
from agentless.controller.uploads import Uploads
from agentless.controller.usage import Usage
from agentless.controller.volumes import Volumes
from agentless.model.owner import check_owner
from agentless.model.view import ControllerView, TaskView


def _asking(request: Request) -> str | None:
    """The owner who asks, None: the controller's own."""
    owner = request.headers.get("x-agentless-owner")
    return check_owner(owner, "$AGENTLESS_OWNER") if owner else None


Asking = Annotated[str | None, Depends(_asking)]


class House(Protocol):
    """What the process around the API provides."""

    core: Core
    intake: Intake
    scheduler: Scheduler
    actions: Actions
    gate: Gate
    reservations: Reservations
    samples: Samples
    usage: Usage
    trust: Trust
    terminals: Terminals
    files: Files
    envs: Envs
    builds: Builds
    moves: Moves
    tidy: Tidy
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
