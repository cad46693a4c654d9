"""Putting the controller together, and running it: one per state folder, on a Unix socket, until nobody needs it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agentless import __version__, paths, plugins
from agentless.controller.envs.builds import Builds
from agentless.controller.envs.envs import Envs
from agentless.controller.envs.moves import Moves
from agentless.controller.envs.prune import Tidy
from agentless.controller.files.node_files import Files
from agentless.controller.files.outputs import Outputs
from agentless.controller.files.uploads import Uploads
from agentless.controller.files.volumes import Volumes
from agentless.controller.guarded import guarded
from agentless.controller.http import api
from agentless.controller.http.metrics_port import Port, only_metrics
from agentless.controller.http.server import Server
from agentless.controller.images.distribution import Sync
from agentless.controller.nodes.connection import Link
from agentless.controller.nodes.exclusion import Gate
from agentless.controller.nodes.host_keys import Trust
from agentless.controller.nodes.registry import Core
from agentless.controller.scheduling.idle import IdleWatch
from agentless.controller.scheduling.reservations import Reservations
from agentless.controller.scheduling.run_history import Past
from agentless.controller.scheduling.scheduler import Scheduler
from agentless.controller.state.events import Hub
from agentless.controller.tasks.commands import Actions
from agentless.controller.tasks.deadlines import Timer
from agentless.controller.tasks.exec import Terminals
from agentless.controller.tasks.launcher import Launcher
from agentless.controller.tasks.retention import Keeper
from agentless.controller.tasks.submission import Intake
from agentless.controller.usage.samples import Samples
from agentless.controller.usage.scrape import scrape
from agentless.controller.usage.usage import Usage
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.engine import DockerEngine
from agentless.engines.podman.dialect import PODMAN
from agentless.engines.systemd.engine import Systemd
from agentless.errors import ControllerError, InventoryError, Refused, StateError
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.gpus.vendors import GpuVendors
from agentless.inventory.inventory import Inventory, load, stamp_of
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.signature import Signer
from agentless.model.view import ControllerView
from agentless.ports import GpuVendor
from agentless.remote.node_files import NodeFiles
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from agentless.render import Renderer
from agentless.rules.views.publish import timestamp
from agentless.signals import defaults_for_children
from agentless.stores import private
from agentless.stores.files.logs import LogStore
from agentless.stores.files.outputs import OutputStore
from agentless.stores.files.snapshots import SnapshotStore
from agentless.stores.key import KeyFile
from agentless.stores.records.history import History
from agentless.stores.records.samples import SampleStore
from agentless.stores.secrets import SecretStore
from agentless.stores.state.envs import EnvStore
from agentless.stores.state.exclusions import GateStore
from agentless.stores.state.reservations import ReservationStore
from agentless.stores.state.tinydb import TaskStore
from agentless.stores.state.volumes import VolumeStore

LEAVE_AFTER = 15 * 60.0
"""Seconds without a live task and without a request after which a controller that was started on demand leaves."""
TICK = 5.0
VENDORS: tuple[GpuVendor, ...] = (Nvidia(),)
"""GPU vendors. To add one, write a `ports.GpuVendor` in a folder of `gpus/` and name it here."""
OPEN_FILES = 16_384
"""Files that the controller may have open, where the system lets it."""

_log = logging.getLogger(__name__)


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()


@dataclass(slots=True)
class Traffic:
    """Requests under way, and when there was the last one."""

    open: int = 0
    last: float = 0.0


class Controller:
    """Everything in one process: `api.House`."""

    def __init__(self, state: Path, inventory: Path) -> None:
        self._state = state
        self._clock = SystemClock()
        self._started_at = self._clock.now()
        self._inventory = load(inventory)
        self._problem: str | None = None
        self.leaving = False
        self._leave: Callable[[], None] | None = None
        self._renderer = Renderer([paths.config_dir() / "templates", paths.template_dir()])
        self._known_hosts = paths.config_dir() / "known_hosts"
        store = TaskStore(state / "state.json")
        key = KeyFile(state / "key")
        self._signer = Signer(store.controller, key.key)
        self._warnings = tuple(filter(None, [store.warning, key.warning]))
        owner = f"{paths.user_name()}@{socket.gethostname().split('.')[0]}"
        history = History(state / "history.sqlite")
        self.core = Core(owner, store, history, SecretStore(state / "secrets"), Hub(), self._clock)
        self.gate = Gate(self.core, GateStore(store.storage))
        self.envs = Envs(self.core, EnvStore(store.storage))
        self.moves = Moves(self.envs, Sync(self.core))
        self.builds = Builds(self.envs, self.moves)
        self.tidy = Tidy(self.envs, self.moves)
        outputs = OutputStore(state / "outputs.sqlite")
        snapshots = SnapshotStore(state / "snapshots")
        self.uploads = Uploads(self.core, snapshots, outputs)
        self.outputs = Outputs(self.core, outputs, snapshots)
        self.core.outputs = self.outputs.view
        launcher = Launcher(self.core, self.moves, self.uploads)
        self.past = Past(self.core, self._inventory.half_life)
        self.scheduler = Scheduler(self.core, launcher.begin, self.past)
        self.volumes = Volumes(self.core, VolumeStore(store.storage))
        self.intake = Intake(self.core, self.scheduler, launcher, self.envs, self.volumes, self.uploads, self.outputs)
        logs = LogStore(state / "logs")
        self.actions = Actions(self.core, logs, self.outputs, self.uploads)
        self.timer = Timer(self.core, self.actions)
        self.keeper = Keeper(self.core, logs, self.outputs)
        self.reservations = Reservations(self.core, ReservationStore(store))
        self.idle = IdleWatch(self.core)
        self.samples = Samples(self.core, SampleStore(state / "samples.sqlite"))
        self.usage = Usage(self.core)
        self.trust = Trust(self._known_hosts)
        self.terminals = Terminals(self.core)
        self.files = Files(self.core, NodeFiles(self._renderer))
        self.traffic = Traffic(last=self._clock.now())
        self.port = Port(Counting(only_metrics(self.metrics), self.traffic))

    # -------------------------------------------------------------------- House

    def describe(self) -> ControllerView:
        """The controller itself."""
        parts = (self.core, self.keeper, self.past, self.samples, self.usage, self.port)
        return ControllerView(
            version=__version__,
            pid=os.getpid(),
            inventory=str(self._inventory.path),
            state_dir=str(self._state),
            started_at=timestamp(self._started_at) or "",
            live_tasks=len(self.core.tasks),
            nodes=len(self.core.links),
            warnings=(
                *self._warnings,
                *filter(None, (self._problem, *(part.trouble for part in parts))),
            ),
        )

    async def metrics(self) -> Response:
        """What Prometheus is told."""
        return await scrape(self.core, self.usage, len(self.describe().warnings))

    def leave(self) -> None:
        """End the process once the answer is out."""
        if self._leave is not None:
            asyncio.get_running_loop().call_later(0.05, self._leave)

    async def use_inventory(self, wanted: str | None, *, reading: bool) -> None:
        """Follow the file when it was edited. A broken one leaves the last good one in force for reading only."""
        if wanted is not None and wanted != str(self._inventory.path):
            raise Refused(
                f"the running controller serves {self._inventory.path}, not {wanted}; run: agentless controller stop "
                "(tasks go on), or give the other inventory its own XDG_STATE_HOME"
            )
        if stamp_of(self._inventory.path) != self._inventory.stamp:
            try:
                self._inventory = load(self._inventory.path)
                self._problem = None
                await self._follow(self._inventory)
            except InventoryError as error:
                self._problem = f"{error} (the last good version is in force)"
                if not reading:
                    raise
        else:
            self._problem = None

    def warning(self) -> str | None:
        """All warnings."""
        return "; ".join(self.describe().warnings) or None

    # ---------------------------------------------------------------- life cycle

    async def start(self) -> None:
        """Begin to reach all nodes."""
        self.core.note("started", f"version {__version__}, {len(self.core.tasks)} live tasks, process {os.getpid()}")
        self.keeper.start()
        self.scheduler.start()
        self.timer.start()
        await self._follow(self._inventory)

    async def close(self) -> None:
        """Let go of all nodes. What runs there runs on."""
        await _closed("timer", self.timer.close)
        await _closed("queue", self.scheduler.close)
        await _closed("logs of ended tasks", self.keeper.close)
        await _closed("uploads", self.uploads.close)
        await _closed("metrics", self.port.close)
        await _closed("samples", self.samples.close)
        _run_all(
            {
                "usage": self.usage.write,
                "events": lambda: self.core.note("left", f"{len(self.core.tasks)} live tasks run on"),
            }
        )
        await asyncio.gather(*(_closed(name, link.close) for name, link in self.core.links.items()))
        _run_all(
            {
                "health": self.gate.flush,
                "volumes": self.volumes.flush,
                "history": self.core.history.close,
                "outputs": self.outputs.store.close,
            }
        )

    async def tick(self, *, for_ever: bool) -> None:
        """What is looked after from time to time: silent nodes lose their tasks, an idle controller leaves."""
        while True:
            await asyncio.sleep(TICK)
            self.periodic()
            if not for_ever:
                _run_all({"leaving": self._leave_if_idle})

    def periodic(self) -> None:
        """Do all of the periodic jobs once."""
        _run_all(
            {
                "state": self.core.retry,
                "health": self.gate.flush,
                "volumes": self.volumes.flush,
                "lost tasks": self.core.lose_silent,
                "reservations": self.reservations.tick,
                "logs of ended tasks": self.keeper.tick,
                "uploads": self.uploads.tick,
                "idle GPUs": self.idle.tick,
                "samples": self.samples.tick,
                "usage": self.usage.tick,
                "metrics": self.port.tick,
            }
        )

    def _leave_if_idle(self) -> None:
        if self._is_idle():
            self.leave()

    def _is_idle(self) -> bool:
        """Whether nobody would miss the controller."""
        quiet = self._clock.now() - self.traffic.last > LEAVE_AFTER
        idle = quiet and not self.traffic.open and not self.core.tasks and not self.keeper.busy
        return idle and not self.outputs.waiting

    def on_leave(self, leave: Callable[[], None]) -> Callable[[], None]:
        """Take down how to end the process; gives how to begin that."""

        def begin() -> None:
            self.leaving = True
            self.core.hub.publish({"kind": "leaving"})
            leave()

        self._leave = begin
        return begin

    async def _follow(self, inventory: Inventory) -> None:
        """Links as the inventory says: new nodes are reached, changed ones anew, removed ones let go."""
        before = self.core.links
        kept = {name: link for name, link in before.items() if inventory.nodes.get(name) == link.node}
        self.core.links = {name: kept.get(name) or self._link(node) for name, node in inventory.nodes.items()}
        self.core.shared_dir = inventory.shared_dir
        self.core.image = inventory.image
        self.core.container = inventory.container
        self.scheduler.policy = inventory.policy
        self.keeper.keep = inventory.keep
        self.gate.policy = inventory.health
        self.scheduler.learn = inventory.learn
        self.past.follow(inventory.half_life)
        self.idle.policy = inventory.idle
        for name in self.core.links.keys() - kept.keys():
            self.core.links[name].start()
        await asyncio.gather(*(_closed(name, link.close) for name, link in before.items() if name not in kept))
        await self.port.follow(inventory.metrics)

    def _link(self, node: NodeConfig) -> Link:
        files = SshFiles(home=Path.home(), known_hosts=self._known_hosts)
        transport = plugins.load("remote.transports", node.connection).make(node, files)
        vendors = GpuVendors(VENDORS)
        parts = node, self._renderer, self._signer, vendors, PODMAN if node.has_podman else DOCKER
        return Link(
            node,
            Session(transport, node.name),
            vendors,
            DockerEngine(*parts),
            Systemd(*parts),
            self._clock,
            self.core.node_changed,
            self.core.sighted,
        )


def _run_all(jobs: Mapping[str, Callable[[], None]]) -> None:
    """Do each of these jobs, whatever becomes of the others."""
    for what, job in jobs.items():
        with guarded(what):
            job()


async def _closed(what: str, close: Callable[[], Awaitable[None]]) -> None:
    """Close a part, and let no failure of it keep the others from being closed."""
    with guarded(f"closing: {what}"):
        await close()


class Counting:
    """The API with its traffic counted."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        self._traffic.open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._traffic.open -= 1
            self._traffic.last = time.time()


COLLECT_AFTER = 50_000
"""New objects after which Python looks for garbage in circles. Its own 700 would have it look through everything in the
middle of each look at a long queue, and there is hardly such garbage here."""
TURN = 0.001
"""Seconds for which a thread that computes may hold up the event loop, five times less than Python's own."""


def _open_many_files() -> None:
    """Each follower, session and connection is an open file, and many systems allow 256 or 1024 unless asked for more.

    At the limit nobody would be answered before somebody leaves.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may have yet another limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def run(state: Path, inventory: Path, *, ready: Callable[[], None], for_ever: bool) -> None:
    """Be the controller until told to leave; raises ControllerError when there is one, or what is wrong with the files.

    `ready` is called when requests are answered; `for_ever`: a service manager keeps it, so it never leaves by itself.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = filelock.FileLock(state / "lock", mode=0o600)
        lock.acquire(blocking=False)
        private.tighten(state)
    except filelock.Timeout:
        raise ControllerError(f"a controller runs already for {state}; agentless controller status shows it") from None
    except OSError as error:
        raise StateError(f"the state folder {state} cannot be used: {error.strerror}") from None
    _open_many_files()
    gc.set_threshold(COLLECT_AFTER)
    sys.setswitchinterval(TURN)
    with lock:
        controller = Controller(state, inventory)
        listener = _listen(state)
        try:
            asyncio.run(_serve(controller, listener, ready, for_ever))
        finally:
            listener.close()
            (state / "controller.sock").unlink(missing_ok=True)


def _listen(state: Path) -> socket.socket:
    """A 0600 socket. Bound by its short name from within the folder, since a socket's path has at most 107 bytes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    back = os.open(".", os.O_RDONLY)
    mask = os.umask(0o177)
    try:
        os.chdir(state)
        Path("controller.sock").unlink(missing_ok=True)  # the lock is ours: whoever made it is dead
        listener.bind("controller.sock")
        listener.listen(256)
    finally:
        os.umask(mask)
        os.fchdir(back)
        os.close(back)
    return listener


async def _serve(controller: Controller, listener: socket.socket, ready: Callable[[], None], for_ever: bool) -> None:
    app = Counting(api.make(controller), controller.traffic)
    server = Server(app)
    leave = controller.on_leave(server.ask_to_leave)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    defaults_for_children()
    await controller.start()
    ticking = asyncio.create_task(controller.tick(for_ever=for_ever))
    ready()
    try:
        await server.serve(sockets=[listener])
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        await controller.close()
