"""Wiring: builds the parts of the controller, starts them and closes them."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentless import __version__, paths
from agentless.controller import plugins
from agentless.controller.envs.builds import Builds
from agentless.controller.envs.envs import Envs
from agentless.controller.envs.moves import Moves
from agentless.controller.envs.prune import Prune
from agentless.controller.files.arrivals import Arrivals
from agentless.controller.files.artifacts import Artifacts
from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.files.node_files import Files
from agentless.controller.files.outputs import Outputs
from agentless.controller.files.uploads import Uploads
from agentless.controller.files.volumes import Volumes
from agentless.controller.gangs.ends import GangEnds
from agentless.controller.gangs.members import MemberNodes
from agentless.controller.gangs.starts import Starts
from agentless.controller.guarded import guarded
from agentless.controller.http.metrics_port import MetricsPort, only_metrics
from agentless.controller.images.distribution import ImageDistribution
from agentless.controller.lifetime import Lifetime
from agentless.controller.nodes.cluster_link import ClusterLink
from agentless.controller.nodes.doctor.between import Between
from agentless.controller.nodes.doctor.clusters import ClusterDoctor
from agentless.controller.nodes.doctor.doctor import Doctor
from agentless.controller.nodes.doctor.trials import Trials
from agentless.controller.nodes.health.drain import Drains
from agentless.controller.nodes.health.gpu_health import GpuHealth
from agentless.controller.nodes.health.homes import Homes
from agentless.controller.nodes.health.intruders import Intruders
from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.host_keys import HostKeys
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.news import NodeNews
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.reconciler import Reconciler
from agentless.controller.nodes.registry import Nodes
from agentless.controller.nodes.slurm import SlurmConfig
from agentless.controller.nodes.visits import Visits
from agentless.controller.notify.notifier import Notifier
from agentless.controller.ownership import Ownership
from agentless.controller.periodic import PeriodicJob, do_all
from agentless.controller.scheduling.idle import IdleWatch
from agentless.controller.scheduling.overflows import Overflows
from agentless.controller.scheduling.preemption import Preemption
from agentless.controller.scheduling.queue import Queue
from agentless.controller.scheduling.reservations import Reservations
from agentless.controller.scheduling.run_history import RunHistory
from agentless.controller.scheduling.scheduler import Scheduler
from agentless.controller.served_inventory import ServedInventory
from agentless.controller.ssh.entrance import Entrance
from agentless.controller.ssh.logins import Logins
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.prerequisites import Prerequisites
from agentless.controller.state.reservation_book import ReservationBook
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import GpuViews, TaskViews
from agentless.controller.status import AtStart, Status
from agentless.controller.submit.admission import Admission
from agentless.controller.submit.answers import Answers
from agentless.controller.submit.builder import TaskBuilder
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.awaited_jobs import AwaitedJobs
from agentless.controller.tasks.carried_workflows import CarriedWorkflows
from agentless.controller.tasks.commands import TaskCommands
from agentless.controller.tasks.containers import Containers
from agentless.controller.tasks.deadlines import Deadlines
from agentless.controller.tasks.dependencies import Dependencies
from agentless.controller.tasks.exec import Terminals
from agentless.controller.tasks.launch.launcher import Launcher
from agentless.controller.tasks.launch.preparation import Preparation
from agentless.controller.tasks.left_secrets import LeftSecrets
from agentless.controller.tasks.logs.kept import KeptLogs
from agentless.controller.tasks.logs.logs import TaskLogs
from agentless.controller.tasks.recovery import Recovery
from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.retention import Retention
from agentless.controller.tasks.retries import Retries
from agentless.controller.tasks.stops import Stops
from agentless.controller.traffic import Counting, Traffic
from agentless.controller.usage.samples import Samples
from agentless.controller.usage.scrape import Scrape
from agentless.controller.usage.usage import Usage
from agentless.controller.vps.activity import Activity
from agentless.controller.vps.names import VpsNames
from agentless.controller.vps.replacement import Replacement
from agentless.controller.vps.resizing import Resizing
from agentless.controller.vps.snapshots import Snapshots
from agentless.controller.vps.starts import VpsStarts
from agentless.controller.vps.upkeep import Upkeep
from agentless.controller.vps.vps import Vps
from agentless.controller.workflows.changes import WorkflowChanges
from agentless.controller.workflows.failures import WorkflowFailures
from agentless.controller.workflows.recovery import WorkflowRecovery
from agentless.controller.workflows.workflows import Workflows
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.engine import DockerEngine
from agentless.engines.podman.dialect import PODMAN
from agentless.engines.slurm.engine import Slurm
from agentless.engines.systemd.engine import Systemd
from agentless.gpus.amd.vendor import Amd
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.gpus.vendors import GpuVendors
from agentless.inventory.inventory import Inventory
from agentless.model.containers.signature import Signer
from agentless.model.nodes.node import NodeConfig
from agentless.ports import Clock, GpuVendor
from agentless.remote.node_files import NodeFiles
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from agentless.render import Renderer
from agentless.stores.files.log_pages import LogIndexes
from agentless.stores.files.logs import LogStore
from agentless.stores.files.outputs import OutputStore
from agentless.stores.files.snapshots import SnapshotStore
from agentless.stores.files.workflows import WorkflowStore
from agentless.stores.key import KeyFile
from agentless.stores.records.history import History
from agentless.stores.records.notices import NoticeStore
from agentless.stores.records.samples import SampleStore
from agentless.stores.secrets import SecretStore
from agentless.stores.state.envs import EnvStore
from agentless.stores.state.node_records import NodeRecordStore
from agentless.stores.state.reservations import ReservationStore
from agentless.stores.state.tinydb import TaskStore
from agentless.stores.state.volumes import VolumeStore
from agentless.stores.state.vps import VpsStore
from agentless.stores.workflow_proof import WorkflowProof

VENDORS: tuple[GpuVendor, ...] = (Nvidia(), Amd())
"""GPU vendors. To add one, write a `ports.GpuVendor` in a folder of `gpus/` and name it here."""


class Controller:
    """All parts of one controller process; it is the `Services` of the HTTP routes.

    The parts that only read are built first: tasks, nodes, queue, views. The ledger needs the views, because news
    carry a task as it is published. The parts that change tasks need the ledger.
    """

    def __init__(self, state: Path, inventory: Path, clock: Clock) -> None:
        self.inventory = ServedInventory(inventory, self._follow)
        self.clock = clock
        self._vendors = GpuVendors(VENDORS)
        self._renderer = Renderer([paths.config_dir() / "templates", paths.template_dir()])
        self._ssh_files = SshFiles(home=Path.home(), known_hosts=paths.config_dir() / "known_hosts")
        self.host_keys = HostKeys(self._ssh_files.known_hosts)
        store, key = TaskStore(state / "state.json"), KeyFile(state / "key")
        self._store = store
        self._signer = Signer(store.controller, key.key)
        owner = f"{paths.user_name()}@{socket.gethostname().split('.')[0]}"
        self._build_reading(state, store, owner)
        self._build_nodes(state)
        self._build_files(state, store)
        self._build_submission()
        self._build_commands(state)
        self._build_process(state)
        self.status = Status(
            state,
            self.inventory,
            self.tasks,
            self.nodes,
            (
                AtStart(store.warning),
                AtStart(key.warning),
                self.inventory,
                self.ledger.stores,
                self.retention,
                self.run_history,
                self.samples,
                self.usage,
                self.port,
                self.notifier,
            ),
            clock,
        )

    def _build_reading(self, state: Path, store: TaskStore, owner: str) -> None:
        """Build the parts that change no task."""
        clock = self.clock
        self.bus = EventBus()
        self._ownership = Ownership(state / "lock")
        self.workflow_proof = WorkflowProof(paths.config_dir() / "workflows", state)
        history, secrets = History(state / "history.sqlite"), SecretStore(state / "secrets")
        self._stores = TaskStores(store, history, secrets, self._ownership, self.workflow_proof)
        self.tasks = Tasks(owner, store.controller, self._stores.history)
        self.records = NodeRecords(NodeRecordStore(store.storage), self._stores)
        self.reservation_book = ReservationBook(ReservationStore(store), self._stores)
        self.homes = Homes(self.records)
        self.nodes = Nodes(self.tasks, self.records, self.reservation_book, self.homes, self.bus, clock)
        self.lookup = Lookup(self.tasks, self.nodes, clock)
        self.run_history = RunHistory(self.tasks, self.bus, clock, self.inventory.inventory.half_life)
        outputs = OutputStore(state / "outputs.sqlite")
        self.expected_outputs = ExpectedOutputs(outputs, self.tasks, self.nodes, self.bus)
        self.arrivals = Arrivals(self.expected_outputs, self.tasks, self.bus)
        self.prerequisites = Prerequisites(self.tasks, self.arrivals, self.bus)
        self.overflows = Overflows(self.nodes, clock)
        self.queue = Queue(self.tasks, self.nodes, self.prerequisites, self.run_history, self.overflows, clock)
        self.views = TaskViews(self.tasks, self.nodes, self.queue, self.expected_outputs, clock)
        self.gpu_views = GpuViews(self.tasks, clock)

    def _build_nodes(self, state: Path) -> None:
        """Build the ledger, and the parts that are about nodes."""
        tasks, nodes, bus, clock = self.tasks, self.nodes, self.bus, self.clock
        ledger = self.ledger = Ledger(tasks, self._stores, self.views, bus, clock)
        self.samples = Samples(nodes, self.homes, SampleStore(state / "samples.sqlite"), bus, clock)
        self.usage = Usage(tasks, nodes, self.records, bus, clock)
        self.idle = IdleWatch(ledger, bus, clock)
        self.notifier = Notifier(tasks, NoticeStore(state / "notify.sqlite"), bus, clock)
        self.health = GpuHealth(self.records, self.homes, ledger, clock)
        news = NodeNews(nodes, self.health, Intruders(ledger), ledger, bus, clock)
        self.exclusions = Drains(nodes, self.records, news, bus, clock)
        self.reservations = Reservations(self.reservation_book, nodes, ledger, clock)
        self.reconciler = Reconciler(nodes, ledger, bus, clock)
        self.trials = Trials(nodes, self._vendors, self._renderer, clock)
        self.between = Between(nodes, self.tasks, self._renderer)
        self.slurm_config = SlurmConfig(nodes, tasks, self.reservation_book, self.inventory, self._renderer, clock)
        self.cluster_doctor = ClusterDoctor(nodes, self._ssh_files)
        self.doctor = Doctor(nodes, ledger, self._vendors, self._renderer, self._ssh_files, clock)

    def _build_files(self, state: Path, store: TaskStore) -> None:
        """Build the parts that are about envs, images and files."""
        tasks, nodes, lookup, clock = self.tasks, self.nodes, self.lookup, self.clock
        snapshots = SnapshotStore(state / "snapshots")
        self.envs = Envs(EnvStore(store.storage), nodes, self.ledger, lookup, clock)
        self.moves = Moves(self.envs, ImageDistribution())
        self.builds = Builds(self.envs, self.moves)
        self.prune = Prune(self.envs, self.moves)
        self.uploads = Uploads(nodes, tasks, snapshots, self.expected_outputs.store, clock)
        self.volumes = Volumes(nodes, tasks, self.records, VolumeStore(store.storage), self._stores, self.bus)
        self.outputs = Outputs(self.expected_outputs, snapshots, state / "artifacts", self.ledger)
        self.workflow_store = WorkflowStore(state / "workflows")
        self.artifacts = Artifacts(
            state / "artifacts", self.expected_outputs, self.arrivals, snapshots, lookup, self.bus
        )
        self.files = Files(nodes, lookup, NodeFiles(self._renderer))
        self.visits = Visits(clock)
        self.terminals = Terminals(nodes, self.ledger, lookup, self._vendors, self.visits, self.bus)

    def _build_submission(self) -> None:
        """Build the parts on the way of a submit."""
        tasks, nodes, ledger, lookup, bus, clock = (
            self.tasks, self.nodes, self.ledger, self.lookup, self.bus, self.clock,
        )  # fmt: skip
        carried = self.carried_workflows = CarriedWorkflows(tasks, self.workflow_store, self.workflow_proof, bus, clock)
        preparation = Preparation(ledger, self.moves, self.uploads, self.artifacts, carried, clock)
        self.launcher = Launcher(nodes, ledger, self.reconciler, preparation, self.overflows.taken_back, bus, clock)
        members = MemberNodes(nodes, ledger, self.launcher, self._renderer)
        self.starts = Starts(self.launcher, members, self.reconciler, ledger, bus, clock)
        self.scheduler = Scheduler(self.queue, self.overflows, nodes, ledger, lookup, self.starts, bus)
        self.awaited_jobs = AwaitedJobs(ledger, self.prerequisites, bus, clock)
        self.left_secrets = LeftSecrets(nodes, ledger, bus, clock)
        self.dependencies = Dependencies(ledger, lookup, self.prerequisites, bus, clock)
        self.builder = TaskBuilder(
            nodes, self.envs, self.volumes, self._vendors, self.dependencies, self.overflows, clock
        )
        admission = Admission(nodes, self.overflows, ledger, self.dependencies, self.expected_outputs, clock)
        answers = Answers(self.starts, self.scheduler, tasks, lookup, self.views, bus)
        self.submission = Submission(self.builder, admission, answers, self.queue, nodes, self.uploads)

    def _build_commands(self, state: Path) -> None:
        """Build the parts that are about tasks that exist."""
        tasks, nodes, ledger, lookup, bus, clock = (
            self.tasks, self.nodes, self.ledger, self.lookup, self.bus, self.clock,
        )  # fmt: skip
        logs, containers = LogStore(state / "logs"), Containers(nodes, ledger, lookup)
        self.stops = Stops(containers, nodes, ledger, lookup, bus, clock)
        self.gang_ends = GangEnds(ledger, self.stops, bus)
        self.commands = TaskCommands(containers, nodes, tasks, lookup, self.expected_outputs, bus)
        self.retries = Retries(ledger, lookup, self.dependencies, self.uploads, clock)
        self.removal = Removal(nodes, self.stops, ledger, lookup, self.expected_outputs, logs)
        self.recovery = Recovery(nodes, self.envs, ledger, self.views, clock)
        self.logs = TaskLogs(nodes, tasks, lookup, logs, bus, clock)
        self.kept_logs = KeptLogs(nodes, lookup, logs, LogIndexes(logs))
        self._build_vps()
        self._build_workflows()
        self.deadlines = Deadlines(nodes, ledger, self.stops, bus, clock)
        self.preemption = Preemption(nodes, ledger, self.stops, bus, clock)
        self.retention = Retention(nodes, tasks, logs, self.outputs, bus, clock)

    def _build_vps(self) -> None:
        """Build the parts that are about VPS."""
        nodes, ledger, lookup, bus = self.nodes, self.ledger, self.lookup, self.bus
        names = VpsNames(self.tasks, lookup, VpsStore(self._store.storage), self._stores, bus)
        starts = VpsStarts(nodes, ledger, self.reconciler, bus)
        changes = self.submission, self.stops, self.removal, starts
        activity = Activity(nodes, self.idle, self.visits, self.clock)
        self.upkeep = Upkeep(ledger, activity, self.visits, self.clock)
        snapshots = Snapshots(self.envs, self.prune, names, ledger, bus)
        self.vps = Vps(names, changes, snapshots, Replacement(*changes, ledger, lookup), Resizing(nodes, ledger))

    def _build_workflows(self) -> None:
        """Build the parts that are about workflows."""
        self.workflows = Workflows(
            self.submission, self.workflow_store, self.carried_workflows, self.artifacts, self.tasks, self.views
        )
        self.workflow_changes = WorkflowChanges(self.workflows, self.stops, self.retries, self.removal)
        self.workflow_failures = WorkflowFailures(self.workflows, self.ledger, self.bus)
        self.workflow_recovery = WorkflowRecovery(
            self.nodes, self.workflows, self.recovery, self.ledger, self.workflow_proof
        )

    def _build_process(self, state: Path) -> None:
        """Build the parts that are about the process itself."""
        tasks, bus, clock = self.tasks, self.bus, self.clock
        self.traffic = Traffic(clock)
        self.lifetime = Lifetime(self.traffic, tasks, self._has_work, bus, clock)
        self.metrics = Scrape(self.nodes, self.ledger, self.usage, self._warnings)
        self.ssh = Entrance(state, tasks.owner, Logins(self.terminals, self.builds, self.nodes), self.traffic)
        self.port = MetricsPort(Counting(only_metrics(self.metrics.answer), self.traffic))

    # ---------------------------------------------------------------- life cycle

    @property
    def jobs(self) -> list[PeriodicJob]:
        """The periodic jobs, in their order."""
        return [
            PeriodicJob("state folder", self._ownership.check),
            PeriodicJob("state", self.reconciler.retry),
            PeriodicJob("health", self.records.flush),
            PeriodicJob("volumes", self.volumes.flush),
            PeriodicJob("lost tasks", self.reconciler.lose_silent),
            PeriodicJob("dependencies", self.dependencies.tick),
            PeriodicJob("dependencies of clusters", self.awaited_jobs.tick),
            PeriodicJob("workflows", self.workflow_failures.tick),
            PeriodicJob("artifacts", self.arrivals.tick),
            PeriodicJob("reservations", self.reservations.tick),
            PeriodicJob("logs of ended tasks", self.retention.tick),
            PeriodicJob("uploads", self.uploads.tick),
            PeriodicJob("idle GPUs", self.idle.tick),
            PeriodicJob("VPS", self.upkeep.tick),
            PeriodicJob("gangs", self.gang_ends.tick),
            PeriodicJob("preemption", self.preemption.tick),
            PeriodicJob("samples", self.samples.tick),
            PeriodicJob("usage", self.usage.tick),
            PeriodicJob("metrics", self.port.tick),
            PeriodicJob("notifications", self.notifier.tick),
        ]

    async def start(self) -> None:
        """Start the background work and connect to all nodes."""
        live = len(self.tasks.live)
        self.ledger.note("started", f"version {__version__}, {live} live tasks, process {os.getpid()}")
        self.retention.start()
        self.awaited_jobs.start()
        self.dependencies.start()
        self.scheduler.start()
        self.workflow_failures.start()
        self.deadlines.start()
        await self.inventory.start()
        self.notifier.tick()

    async def close(self) -> None:
        """Stop the background work and disconnect; tasks on the nodes keep running."""
        await _closed("timer", self.deadlines.close)
        await _closed("dependencies", self.dependencies.close)
        await _closed("workflows", self.workflow_failures.close)
        await _closed("queue", self.scheduler.close)
        await _closed("gangs", self.starts.close)
        await _closed("ends of gangs", self.gang_ends.close)
        await _closed("preemption", self.preemption.close)
        await _closed("logs of ended tasks", self.retention.close)
        await _closed("secrets", self.left_secrets.close)
        await _closed("uploads", self.uploads.close)
        await _closed("metrics", self.port.close)
        await _closed("notifications", self.notifier.close)
        await _closed("samples", self.samples.close)
        await _closed("trials", self.trials.close)
        live = len(self.tasks.live)
        do_all([
            PeriodicJob("usage", self.usage.write),
            PeriodicJob("events", lambda: self.ledger.note("left", f"{live} live tasks keep running")),
        ])  # fmt: skip
        await _closed("nodes", self.nodes.close)
        do_all([
            PeriodicJob("health", self.records.flush),
            PeriodicJob("volumes", self.volumes.flush),
            PeriodicJob("history", self._stores.history.close),
            PeriodicJob("outputs", self.expected_outputs.store.close),
        ])  # fmt: skip

    def _has_work(self) -> bool:
        """Whether something is still to be fetched, removed or sent."""
        return self.retention.busy or self.expected_outputs.waiting or self.notifier.busy

    def _warnings(self) -> tuple[str, ...]:
        return self.status.warnings()

    async def _follow(self, inventory: Inventory) -> None:
        """Put a new version of the inventory in force."""
        for part in (
            self.overflows, self.queue, self.run_history, self.retention, self.health, self.exclusions, self.idle,
            self.builder, self.moves, self.notifier,
        ):  # fmt: skip
            part.on_inventory(inventory)
        await self.nodes.follow(inventory, self._link, self._cluster_link)
        await self.port.on_inventory(inventory)

    def _session(self, node: NodeConfig, *programs: str) -> Session:
        transport = plugins.load("remote.transports", node.connection).make(node, self._ssh_files)
        return Session(transport, node.name, programs)

    def _cluster_link(self, node: NodeConfig) -> ClusterLink:
        engine = Slurm(node, node.cluster, self._renderer, self._signer)
        return ClusterLink(node, self._session(node, "sbatch", "squeue"), engine, self.clock, self.nodes)

    def _link(self, node: NodeConfig) -> NodeLink:
        parts = node, self._renderer, self._signer, self._vendors, PODMAN if node.has_podman else DOCKER
        return NodeLink(
            node,
            self._session(node, "docker", *self._vendors.programs),
            self._vendors,
            NodeEngines(DockerEngine(*parts), Systemd(*parts)),
            self._renderer,
            self.clock,
            self.nodes,
        )


async def _closed(what: str, close: Callable[[], Awaitable[None]]) -> None:
    """Close a part; a failure is logged, so that the other parts are closed too."""
    with guarded(f"closing {what}"):
        await close()
