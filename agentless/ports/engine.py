"""Engines run tasks on a node: methods return commands, or parse the answers to them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agentless.model.command import Command, Result, Section
from agentless.model.containers.container import Container
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.nodes.checkup import EngineCheckup
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import EngineFacts
from agentless.model.nodes.slurm import SlurmCheckup, SlurmTrial
from agentless.model.nodes.trial import TrialAnswer
from agentless.model.tasks.task import Placement, Task
from agentless.ports.engine_parts import (
    EnvCommands,
    FileCommands,
    ImageCommands,
    OutputCommands,
    Reading,
    TerminalCommands,
    VolumeCommands,
)


class Engine(Protocol):
    """What Docker, podman and systemd have in common. Optional parts are None where an engine lacks them.

    `container` is the id that `parse_launch` returned, or the name of the task's container. `at_once` is how many
    launches may be in one script, and `of_a_batch` if they are of one batch, `program` what starts a task, in messages.
    """

    at_once: int
    of_a_batch: int
    program: str

    @property
    def images(self) -> ImageCommands | None:
        """Images from its registry, and from other nodes."""

    @property
    def volumes(self) -> VolumeCommands | None:
        """Volumes that outlive a task."""

    @property
    def files(self) -> OutputCommands | None:
        """Files out of its tasks, and into containers."""

    @property
    def envs(self) -> EnvCommands | None:
        """Environments, as images of ours."""

    @property
    def terminal(self) -> TerminalCommands:
        """Interactive programs in its tasks."""

    def facts(self) -> tuple[Section, ...]:
        """Ask for the engine's state and for all of our tasks."""

    def parse_facts(self, sections: Mapping[str, Result], asked: float, answered: float) -> EngineFacts:
        """The engine's answer between two moments (Unix seconds, our clock); `error` if it cannot be used."""

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """Start tasks, not too many, in one script: under the node's lock, unless somebody holds their GPUs.

        All have the same secrets. A task that has been started is never started again.
        """

    def answers(self, count: int, result: Result) -> list[Result]:
        """Split the answer to a script of `count` launches into one answer each."""

    def answered(self, count: int, out: bytes) -> dict[int, Result]:
        """The answers that are complete in the output so far, by the place of the launch in the script."""

    def parse_launch(self, task: Task, result: Result) -> str:
        """The id of what was started. Raises Refused or RuntimeFailed if nothing was, NoAnswer if that is not known."""

    def containers(self, task: str) -> Command:
        """Ask for the containers of one task."""

    def parse_containers(self, result: Result, clock: float) -> tuple[Container, ...]:
        """The containers in an answer; `clock` is by how many seconds the node's clock is ahead of ours."""

    def logs(self, container: str, query: LogQuery) -> Command:
        """Print its log as a stream that `reading` understands."""

    def reading(self, query: LogQuery) -> Reading:
        """Reads the task's output from that stream."""

    def filtered_logs(self, container: str, of_stdout: Sequence[str], of_stderr: Sequence[str]) -> Command:
        """Print the log that there is, each of the two streams through a program on the node."""

    def signal(self, container: str, signal: str) -> Command:
        """Send its first process a signal, named without SIG."""

    def pause(self, container: str) -> Command:
        """Freeze all processes."""

    def resume(self, container: str) -> Command:
        """Let frozen processes run again."""

    def remove(self, container: str, *, force: bool = False) -> Command:
        """Remove it; with `force` also while it runs."""

    def check(self, result: Result) -> None:
        """Raise RuntimeFailed with the complaint unless the command worked."""

    def complaint(self, words: str) -> str:
        """The engine's complaint as a sentence with the fix."""


class ContainerEngine(Engine, Protocol):
    """An engine for containers: it lists them, describes each by its id, and reports changes."""

    def remove_all(self, containers: Sequence[str], *, force: bool = False) -> Command:
        """Remove containers; prints those that it has removed, as they are given."""

    def checkup(self) -> Section:
        """Ask for what `doctor` wants to know of the engine."""

    def parse_checkup(self, sections: Mapping[str, Result]) -> EngineCheckup | None:
        """The answer to that; None if it was cut off."""

    def trial(self, wanted: Sequence[Launch], label: str, image: str | None) -> Command:
        """Launch containers with this label, `KEY=SECONDS-TOKEN`, one after the other; print what each prints.

        The script ends by itself and leaves nothing, also of older trials that were broken off. `image` is one that
        comes as an archive on its stdin.
        """

    def clear_trial(self, label: str, image: str | None) -> Command:
        """Remove what a trial has left whose script was ended: containers with this label, and the image."""

    def parse_trial(self, result: Result) -> list[TrialAnswer]:
        """What became of each; those whose turn did not come are missing. Raises RuntimeFailed."""

    def carried(self) -> Command:
        """Ask which containers carry a workflow, and for what it was like."""

    def carried_jobs(self, containers: Sequence[str]) -> Command:
        """Ask for the jobs that these containers carry."""

    def parse_carried(self, result: Result) -> dict[str, str]:
        """The labels in either answer, by container."""

    def resize(self, container: str, cores: float | None, memory: int | None) -> Command:
        """Give a container these limits (memory in bytes) while it runs; None: as it is."""

    def cpu(self, containers: Sequence[str]) -> Command:
        """Ask for the processor time that containers have used."""

    def parse_cpu(self, result: Result) -> dict[str, float]:
        """That time in seconds, by container; one that did not answer is missing."""

    def revival(self, task: Task, placement: Placement) -> Command:
        """Start its container again: under the node's lock, unless somebody holds its GPUs; see `parse_launch`."""

    @property
    def images(self) -> ImageCommands:
        """Images from its registry, and from other nodes."""

    @property
    def volumes(self) -> VolumeCommands:
        """Volumes that outlive a task."""

    @property
    def files(self) -> FileCommands:
        """Files into containers, and out of them."""

    def inspect(self, containers: Sequence[str]) -> Command:
        """Describe containers by id. If one is gone, the answer lacks it and the command fails."""

    def says_gone(self, result: Result, missing: Iterable[str]) -> bool:
        """Whether an answer of `inspect` says that all these containers are gone, rather than nothing about them."""

    def has_ended_so(self, container: Container, status: str) -> bool:
        """Whether `EngineFacts.listed` has this status for a container that has ended as we know already."""

    def events(self, since: float) -> Command:
        """The stream of changes to our containers since then (Unix seconds by the node's clock).

        Each is a line: the event, the container's id, the task's id.
        """

    def reap(self, container: str) -> Command:
        """Remove a container that was never started, unless it has been meanwhile."""

    def undo(self, launch: Launch, *, force: bool = False) -> Command:
        """Remove what this launch has created and not started; with `force`, also if it was started."""


class ClusterEngine(Engine, Protocol):
    """An engine that chooses nodes and times itself: it has a queue of its own."""

    @property
    def files(self) -> OutputCommands:
        """Files out of its jobs."""

    def facts(self, *, accounting: bool = False) -> tuple[Section, ...]:
        """Ask for all our jobs, with `accounting` also for those that it has forgotten without an end."""

    def know(self, job: Container) -> None:
        """Take it from now on for what its labels say, whatever is changed of it."""

    def nodes(self) -> Command:
        """List its compute nodes."""

    def parse_nodes(self, result: Result) -> tuple[ClusterNode, ...]:
        """The nodes in the answer; raises RuntimeFailed."""

    def scripts(self) -> Command:
        """Read what the scripts of all our jobs carry."""

    def parse_scripts(self, result: Result) -> dict[str, dict[str, str]]:
        """The labels of tasks in the answer, by task; raises RuntimeFailed."""

    def carried_jobs(self, containers: Sequence[str]) -> Command:
        """Read the workflows that the scripts of these jobs carry, too."""

    def parse_carried(self, result: Result) -> dict[str, str]:
        """The label of the jobs of a workflow, by the name of the job that carries it."""

    def with_labels(self, job: Container, labels: Mapping[str, str]) -> Container:
        """A job with the labels that its script carries, signed if their signature is."""

    def remove_secrets(self, tasks: Sequence[str]) -> Command:
        """Remove what is left of the secrets of these tasks on its disk."""

    def starts_in(self, task: Task) -> str | None:
        """The folder in which the command of a task starts, seen from the home folder; None: one in its image."""

    def keep_files(self, key: str, mark: str) -> Command:
        """Keep an archive with files for jobs, unless it is there; it comes by stdin once this has said the mark."""

    def checkup(self) -> Command:
        """Ask for what `doctor` wants to know."""

    def parse_checkup(self, result: Result) -> SlurmCheckup | None:
        """The answer to that; None if it was cut off."""

    def trial(self, mark: str, *, gpus: bool) -> Command:
        """Run a job that shows that one can, with one of the `gpus` if there are any. One that waits is cancelled."""

    def parse_trial(self, result: Result) -> SlurmTrial:
        """What became of it."""


class HostEngine(Engine, Protocol):
    """An engine for tasks without a container. Its changes come in one stream with those of the container engine."""

    def watch(self, beside: Command) -> Command:
        """A stream of what happens to its tasks, see `parse_watched`, and of all that the command `beside` prints."""

    def parse_watched(self, line: str) -> tuple[str, str] | None:
        """`live`, `over` or `gone`, and the task's id; None for a line of the other stream."""
