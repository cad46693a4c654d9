"""What is known of one node: the last observation, and the containers in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from agentless.errors import Unreachable
from agentless.model.containers.claim import named_task
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.host_load import HostLoad
from agentless.model.nodes.node import unreachable
from agentless.model.nodes.sighting import Sighting
from agentless.ports import Clock
from agentless.rules.nodes.gpu_exclusion import recognised
from agentless.rules.nodes.twins import Boot, boot_of


class NodeCache:
    """What everybody reads of a node, and only the parts of its link write.

    `booted_at` is when (Unix seconds) the first full look left that found the machine in another boot than before.
    `on_change` is called whenever the observation has changed, `on_sighting` whenever the node has named containers.
    """

    def __init__(
        self, name: str, clock: Clock, on_change: Callable[[], None], on_sighting: Callable[[Sighting], None]
    ) -> None:
        self.name = name
        self.observation = Observation()
        self._clock = clock
        self._on_change = on_change
        self._on_sighting = on_sighting
        self._named: Mapping[str, float] = {}  # when each GPU was named last
        self._ended: set[str] = set()  # containers that have ended since the last full look
        self._listed_at: float | None = None
        self._boot: Boot | None = None
        self.booted_at: float | None = None

    # ----------------------------------------------------------------- reading

    def now(self) -> float:
        """Unix seconds, by the clock of all times in here."""
        return self._clock.now()

    @property
    def clock_ahead(self) -> float:
        """By how many seconds the node's clock is ahead of ours."""
        engine = self.observation.engine
        return engine.clock if engine else 0.0

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of ours that it has named last."""
        engine = self.observation.engine
        return (engine.containers or ()) if engine else ()

    def of_task(self, task: str) -> tuple[Container, ...]:
        """Those of them that name this task."""
        return tuple(container for container in self.containers if named_task(container) == task)

    def knows_ended(self, task: str) -> bool:
        """Whether what runs this task is known to have ended."""
        return any(container.over for container in self.of_task(task))

    @property
    def online(self) -> bool:
        """Whether it answers now."""
        return self.observation.error is None

    def check_online(self) -> None:
        """Raise Unreachable unless it answers now."""
        if not self.online:
            raise Unreachable(unreachable(self.name, self.observation.error))

    @property
    def has_stranger(self) -> bool:
        """Whether a process outside all containers uses one of its GPUs."""
        sample = self.observation.sample
        return sample is not None and any(process.container is None for process in sample.processes or ())

    @property
    def silence(self) -> str | None:
        """Why it does not say which containers of ours it has, None when it does."""
        seen = self.observation
        if seen.error is not None or seen.engine is None:
            return seen.error or "no answer yet"
        return None if seen.engine.containers is not None else seen.engine.error or "cannot list its containers"

    @property
    def known_until(self) -> float | None:
        """Up to when (Unix seconds) its containers are known, while it does not say; None: it has never said."""
        sampled, engine = self.observation.sampled_at, self.observation.engine
        if self._listed_at is None or sampled is None or engine is None or engine.containers is None:
            return self._listed_at
        return max(self._listed_at, sampled)  # the engine would have told of a change for as long as the link was there

    # ----------------------------------------------------------------- writing

    def observe(self, observation: Observation) -> None:
        """Replace the observation, and notify."""
        self.observation = observation
        self._on_change()

    def sampled(self, sample: GpuSample, load: HostLoad | None) -> None:
        """Take in a new sample, and how busy the machine is."""
        sample = self._living(self.recognised(sample))
        self.observe(replace(self.observation, sample=sample, sampled_at=self.now(), load=load))

    def recognised(self, sample: GpuSample) -> GpuSample:
        """The sample, without GPUs if the node names other ones all the time."""
        self._named, sample = recognised(self._named, sample, self.now())
        return sample

    def listed(self) -> None:
        """The engine confirms that the containers here are as of now."""
        self._listed_at = self.now()

    def saw_all(self, asked: float, *, blind: bool) -> None:
        """A full look named all containers, which the observation has already; `blind` as in `Sighting`."""
        self._ended.intersection_update(container.id for container in self.containers if container.over)
        self.listed()
        self._on_sighting(Sighting(self.containers, asked, blind=blind))

    def saw(self, task: str, found: tuple[Container, ...], asked: float, about: Collection[str] | None = None) -> None:
        """A look at one task named these containers and no other ones; `about` as in `Sighting`."""
        self._remember(task, found)
        self._on_sighting(Sighting(found, asked, task, about=about))

    def begun(self, seen: Observation, asked: float) -> None:
        """Take down which boot of the machine a full look has found."""
        if boot := boot_of(seen):
            if self._boot and boot.follows(self._boot):
                self.booted_at = asked
            self._boot = boot

    def _remember(self, task: str, found: tuple[Container, ...]) -> None:
        engine = self.observation.engine
        if engine is None or engine.containers is None:
            return
        before = {container.id for container in self.of_task(task)}
        live = {container.id for container in found if container.live}
        self._ended = (self._ended | before) - live
        others = tuple(container for container in engine.containers if container.id not in before)
        sample = self.observation.sample and self._living(self.observation.sample)
        self.observe(replace(self.observation, sample=sample, engine=replace(engine, containers=(*others, *found))))

    def _living(self, sample: GpuSample) -> GpuSample:
        """The sample without processes of containers that have ended since: a freed GPU is free at once."""
        if not sample.processes:
            return sample
        return replace(sample, processes=tuple(p for p in sample.processes if p.container not in self._ended))
