"""Overflow to the clusters of the inventory, as they are known now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentless.controller.nodes.registry import Nodes
from agentless.errors import AgentlessError, JobRefused, UsageError
from agentless.inventory.inventory import Inventory
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.overflow import Overflow, Refusal
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_event import HandedBack, HandedOver
from agentless.model.units import format_duration
from agentless.ports import Clock
from agentless.rules.explain.obstacles import never
from agentless.rules.scheduling.overflow import KnownCluster, cause_words, going, overflow_words, takers
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.submit.cluster import check_for_overflow
from agentless.rules.submit.cluster_gpus import with_type
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.settings import with_shared

AGAIN_AFTER = 3600.0
"""Seconds before a cluster is asked again for a task whose job it did not take for a reason that may pass."""


class Overflows:
    """Says which tasks go to a cluster, because no node can start them in time."""

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self._nodes = nodes
        self._clock = clock
        self._usual = Overflow()
        self._seen: Cluster | None = None  # by the last plan
        self._hopeless: dict[object, bool] = {}
        self._image: str | None = None
        self._container: str | None = None
        self._shared_dir: str | None = None

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its clusters for overflow, and its limit."""
        self._usual = inventory.overflow
        self._image, self._container, self._shared_dir = inventory.image, inventory.container, inventory.shared_dir

    def check(self, spec: TaskSpec) -> None:
        """Check the clusters that a task names. `spec` has the defaults of the inventory (`as_built`).

        Raises NotFound, or UsageError if none can ever take it.
        """
        problems = list[UsageError]()
        for name in spec.terms.overflow or ():
            try:
                check_for_overflow(spec, name, self._nodes.cluster_link(name).node.cluster)
            except UsageError as error:
                problems.append(error)
        if problems and len(problems) == len(spec.terms.overflow or ()):
            raise problems[0]

    def may_go(self, spec: TaskSpec) -> bool:
        """Whether a task can wait for a cluster, even if no node can run it."""
        return bool(takers(spec, self._clusters(spec)))

    def taken_back(self, task: Task, error: AgentlessError) -> HandedBack | None:
        """The event for a task that went to a cluster by overflow, which did not take it.

        None if it has nowhere to wait, since only that cluster could ever run it, and refuses it for good.
        """
        link = self._nodes.clusters.get(task.node or "")
        if link is None or task.before_overflow is None or task.stop:
            return None
        name = link.node.name
        reason = f"{name} refused its job: {error.reason}" if isinstance(error, JobRefused) else str(error)
        lasts = isinstance(error, JobRefused) and error.lasts
        until = None if lasts else self._clock.now() + AGAIN_AFTER
        event = HandedBack(Refusal(name, link.node.cluster, reason, until))
        waits = apply(task, event, self._clock.now())
        if until is not None or takers(waits.spec, self._clusters_of(waits)):
            return event
        return None if self._is_hopeless(waits) else event

    def going(self, queue: Sequence[Task], promises: Mapping[str, Promise | None]) -> dict[str, tuple[HandedOver, str]]:
        """The tasks of a sorted queue that go to a cluster now, by id, and why."""
        self._seen, self._hopeless = None, {}
        if not all(link.answered.is_set() for link in self._nodes.links.values()):
            return {}
        places = dict[object, str | None]()

        def to(task: Task) -> str | None:
            # The tasks of a batch differ in their commands and targets alone, those of a workflow in everything.
            refused = frozenset(self._refused(task))
            key = task.id if task.spec.job else (task.batch, shape_of(task.spec), refused)
            if key not in places:
                able = takers(task.spec, self._clusters_of(task))
                places[key] = able[0].name if able and not able[0].unknown else None
            return places[key]

        asking = {task.id: task for task in queue if self._names(task.spec)}
        now = self._clock.now()
        found, given = going([*asking.values()], promises, now, self._usual.after, to, self._is_hopeless), {}
        for key, cluster in found.items():
            task, promise = asking[key], promises[key]
            cause = cause_words(task, promise, now, hopeless=promise is None and self._is_hopeless(task))
            given[key] = self._handed_over(task, cluster), cause
        return given

    def words(self, task: Task, promise: Promise | None) -> str:
        """Whether a waiting task goes to a cluster and when, in words; empty if it is for nodes only."""
        clusters = self._clusters_of(task)
        hopeless = bool(clusters and promise is None and never(self._nodes.cluster(), task.spec, task.owner))
        return overflow_words(task, promise, self._clock.now(), self._usual.after, clusters, hopeless=hopeless)

    def as_built(self, spec: TaskSpec) -> TaskSpec:
        """A spec as its task will have it: with the image or env of the inventory unless it has one, and its folder."""
        if spec.needs.nodes:
            return spec
        if spec.image is None and spec.container is None:
            spec = replace(spec, image=None if self._container else self._image, container=self._container)
        return spec if spec.on_node_itself else with_shared(spec, self._shared_dir)

    # ------------------------------------------------------------------ inside

    def _is_hopeless(self, task: Task) -> bool:
        """Whether no node can ever run a task, as of the last plan: there may be a thousand like it."""
        self._seen = self._seen or self._nodes.cluster()  # a look at many nodes takes its time
        key = shape_of(task.spec), task.spec.cores, task.spec.memory, task.owner
        if key not in self._hopeless:
            self._hopeless[key] = never(self._seen, task.spec, task.owner) is not None
        return self._hopeless[key]

    def _handed_over(self, task: Task, cluster: str) -> HandedOver:
        spec = with_type(task.spec, cluster, self._nodes.clusters[cluster].inside)
        return HandedOver(cluster, spec.needs.gpu_types)

    def _names(self, spec: TaskSpec) -> tuple[str, ...]:
        """The clusters to which a task may go; none if it names its nodes."""
        if spec.needs.nodes:
            return ()
        return self._usual.clusters if spec.terms.overflow is None else spec.terms.overflow

    def _clusters_of(self, task: Task) -> list[KnownCluster]:
        """Known clusters of a task, with their refusals; a refusal under another configuration does not count."""
        said = self._refused(task)
        known = self._clusters(task.spec)
        return [replace(each, refused=said.get((each.name, each.config), "")) for each in known]

    def _refused(self, task: Task) -> dict[tuple[str, SlurmCluster], str]:
        """The refusals that have not passed, in words, by cluster and configuration."""
        now, found = self._clock.now(), {}
        for each in task.refusals:
            if each.until is None:
                found[each.cluster, each.config] = each.reason
            elif now < each.until:
                found[each.cluster, each.config] = f"{each.reason}; tried again in {format_duration(each.until - now)}"
        return found

    def _clusters(self, spec: TaskSpec) -> list[KnownCluster]:
        return [self._known(name) for name in self._names(spec)]

    def _known(self, name: str) -> KnownCluster:
        link = self._nodes.clusters.get(name)
        if link is None:
            return KnownCluster(name, gone=True)
        return KnownCluster(name, link.node.cluster, None if link.inside_at is None else link.inside, link.silence)
