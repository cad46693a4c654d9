"""The parts of the controller that the HTTP routes use."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from agentless.controller.envs.builds import Builds
from agentless.controller.envs.envs import Envs
from agentless.controller.envs.moves import Moves
from agentless.controller.envs.prune import Prune
from agentless.controller.files.node_files import Files
from agentless.controller.files.uploads import Uploads
from agentless.controller.files.volumes import Volumes
from agentless.controller.lifetime import Lifetime
from agentless.controller.nodes.health.drain import Drains
from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.host_keys import HostKeys
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.queue import Queue
from agentless.controller.scheduling.reservations import Reservations
from agentless.controller.scheduling.run_history import RunHistory
from agentless.controller.scheduling.scheduler import Scheduler
from agentless.controller.served_inventory import ServedInventory
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.reservation_book import ReservationBook
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.status import Status
from agentless.controller.submit.builder import TaskBuilder
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.commands import TaskCommands
from agentless.controller.tasks.exec import Terminals
from agentless.controller.tasks.logs import TaskLogs
from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.retries import Retries
from agentless.controller.tasks.stops import Stops
from agentless.controller.usage.samples import Samples
from agentless.controller.usage.scrape import Scrape
from agentless.controller.usage.usage import Usage
from agentless.model.caller import Caller
from agentless.model.view import TaskView
from agentless.ports import Clock


class Services(Protocol):
    """The parts by capability; routes use those of their own."""

    bus: EventBus
    clock: Clock
    inventory: ServedInventory
    lifetime: Lifetime
    status: Status

    tasks: Tasks
    lookup: Lookup
    views: TaskViews
    ledger: Ledger
    submission: Submission
    builder: TaskBuilder
    commands: TaskCommands
    stops: Stops
    retries: Retries
    removal: Removal
    logs: TaskLogs
    terminals: Terminals

    queue: Queue
    run_history: RunHistory
    scheduler: Scheduler
    reservations: Reservations
    reservation_book: ReservationBook

    nodes: Nodes
    records: NodeRecords
    exclusions: Drains
    host_keys: HostKeys

    files: Files
    uploads: Uploads
    volumes: Volumes
    envs: Envs
    builds: Builds
    moves: Moves
    prune: Prune

    samples: Samples
    usage: Usage
    metrics: Scrape


def seen_by(caller: Caller, view: TaskView) -> TaskView:
    """The view as the caller sees it: `mine` is about the caller."""
    return replace(view, mine=view.owner == caller.name)
