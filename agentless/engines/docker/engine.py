"""Docker: every command is rendered from `templates/docker-*`, every answer parsed here. No I/O.

Container facts come from `docker inspect` (State.Status, State.ExitCode, State.OOMKilled, times as RFC 3339 with
nanoseconds); a claim is what `model/tasks/claim` writes into labels.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import orjson

from agentless.engines.client_warnings import WithoutWarnings, warnings_before
from agentless.engines.docker import container_limits, other_engines
from agentless.engines.docker.complaints import blame, explain, without_words_of
from agentless.engines.docker.envs import EnvWords
from agentless.engines.docker.files import NAME, Workspace
from agentless.engines.docker.images import Images
from agentless.engines.docker.timestamps import StampedReading
from agentless.engines.docker.volumes import MARK, STRANGE, VolumeWords, strange
from agentless.engines.times import seconds
from agentless.errors import AgentlessError, NoAnswer, NodeBroken, NodeUnfit, Refused, RuntimeFailed
from agentless.model.command import SECTION, Command, Result, Section
from agentless.model.files.task_files import Prepared
from agentless.model.nodes.node import Control, EngineFacts, NodeConfig
from agentless.model.tasks.claim import EXCLUSIVE, GPU_MEMORY, GPU_SHARE, GPUS, OWNER, SPEC, TASK, labels_of
from agentless.model.tasks.container import Container
from agentless.model.tasks.launch import Launch
from agentless.model.tasks.log_query import LogQuery
from agentless.model.tasks.signature import COVERED, SIGNATURE, Signer
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.model.text import cut
from agentless.ports import Reading
from agentless.render import Renderer
from agentless.rules.tasks.known_complaints import Blame

LOCK_WAIT = 20
"""Seconds a launch waits for other launches on the same node."""
CLOCKS_AGREE = 1.0
"""Seconds by which a node's clock may differ from ours before its times are corrected."""

_HELD, _LOCKED, UNLISTED, _UNCLEAR, _OTHER_IMAGE = 75, 76, 77, 78, 79
# The claim before the words that others chose: a bar in those cannot hide it.
LIVE = (
    '{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}'
    '|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}'
    '|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}'
)
SIGNED = f'{{{{.Label "{SIGNATURE}"}}}}'
_STATE = "{{.State.Status}}"
_ID = "{{.Id}}"
_LISTING = "{{.ID}} {{.Status}}"
_LISTED = re.compile("[0-9a-f]{64} ")
LABELS = (*COVERED, SIGNATURE)
"""The labels that are read, and no others: whoever may use the engine writes what he likes, and as much of it."""


def inspected(identity: str) -> str:
    """The format that asks for all that is read of a container, each word cut to what it may have."""
    labels = (
        f'"{label}":{{{{json (printf "%.{container_limits.SPEC if label == SPEC else container_limits.WORDS}s" '
        f'(or (index .Config.Labels "{label}") ""))}}}}'
        for label in LABELS
    )
    state = (f'"{field}":{{{{json .State.{field}}}}}' for field in ("Status", "ExitCode", "OOMKilled", *_TIMES))
    return (
        f'{{"id":{{{{json {identity}}}}},"name":{{{{json (printf "%.{container_limits.WORDS}s" .Name)}}}}'
        f',"created":{{{{json .Created}}}},"state":{{{",".join(state)}'
        f',"Error":{{{{json (printf "%.{container_limits.WORDS}s" .State.Error)}}}}}},"labels":{{{",".join(labels)}}}}}'
    )


_TIMES = ("StartedAt", "FinishedAt")
_INSPECT = inspected(".Id")
# Docker 20.10 has no other fields when its engine does not answer.
_INFO = (
    '{"errors":{{json .ServerErrors}}'
    '{{if not .ServerErrors}},"version":{{json .ServerVersion}},"runtimes":{{json .Runtimes}}'
    ',"memory":{{json .MemoryLimit}},"cpu":{{json .CPUCfsQuota}},"cpuset":{{json .CPUSet}}'
    ',"cgroups":{{json .CgroupDriver}},"security":{{json .SecurityOptions}}'
    ',"time":{{json .SystemTime}},"id":{{json .ID}}{{end}}}'
)
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
_AFTER_START = re.compile(r"Error: failed to start containers: [0-9a-f]{64}\s*")
"""What `docker start` says after the cause."""
_DETACH = frozenset({"-d", "--detach", "--detach=true"})
_ANSWER = re.compile(rb"^([1-9][0-9]{0,3})([|=])(.*)$", re.MULTILINE)


class ImageMissing(RuntimeFailed):
    """The image is not on the node; it has to be pulled before the launch is tried again."""


class FilesMissing(RuntimeFailed):
    """The image with the task's files is not on the node any more; it has to be made again."""


class Held(Refused):
    """Another task holds one of the GPUs, or wants the node alone, and no container of this task lives on the node."""


class Unseen(Refused):
    """Another engine on the node may have given away its GPUs, and does not say so."""


class Docker:
    """The Docker engine of one node, spoken to by the `docker` command as the inventory writes it.

    What another engine with much the same command does otherwise, its class overrides: see there from `_template` on.
    `keeps_envs`: whether it can keep environments, as images of ours. `at_once`: how many launches are one script.
    """

    keeps_envs = True
    at_once = 8
    _times_are_exact = True  # of each line in a log its own
    _volumes = VolumeWords
    _makes_volumes = False
    _live, _state, _inspected, _info = LIVE, _STATE, _INSPECT, _INFO
    _signed = SIGNED

    def __init__(self, node: NodeConfig, renderer: Renderer, signer: Signer) -> None:
        self._node = node
        self._signer = signer
        self._docker = list(node.docker)
        self._quiet = list(node.docker)  # where what it warns of would come with what a task prints
        self._renderer = renderer
        self.images = Images(node, renderer, self.complaint)
        self.envs = EnvWords(node, renderer)
        self.workspace = Workspace(node.docker, renderer, podman=node.has_podman)
        self.volumes = self._volumes(node, renderer, self.complaint)
        self.warnings: tuple[str, ...] = ()

    # ------------------------------------------------------------------ asking

    def facts(self) -> tuple[Section, ...]:
        """Version, NVIDIA support, a list of our containers and what other engines there are, as three sections."""
        info = self._renderer.script(self._template("docker-facts.sh.j2"), docker=self._docker, format=self._info)
        return (
            Section("docker.info", info),
            Section("docker.containers", self.listing().script),
            other_engines.facts(self._renderer, self._node, LIVE),
        )

    def listing(self) -> Command:
        """Ask which containers of ours there are."""
        return self._words("docker-list.j2", format=_LISTING)

    def parse_list(self, result: Result) -> dict[str, str]:
        """Their ids, each with the engine's words for its state."""
        return dict(line.split(" ", 1) for line in result.out.splitlines() if _LISTED.match(line))

    def parse_facts(self, sections: Mapping[str, Result], asked: float, answered: float) -> EngineFacts:
        """The engine as it answered; what it could not do is a sentence in `error`. Unix seconds by our clock."""
        info = sections.get("docker.info")
        listed = sections.get("docker.containers")
        if info is None or listed is None:
            return EngineFacts(error="its answer about Docker was cut off")
        # The answer is one line: sudo and docker print warnings before it, newer dockers print their errors after it.
        lines = info.out.splitlines()
        answer = next((line for line in lines if line.startswith("{")), "{}")
        others = [line for line in lines if line.strip() and line != answer]
        try:
            fields = orjson.loads(answer)
        except orjson.JSONDecodeError:
            fields = {}
        version = cut(str(fields.get("version") or ""), 64)
        if not info.ok or not version:
            return EngineFacts(error=self.complaint("; ".join(fields.get("errors") or others)))
        self.warnings = warnings_before(answer, lines)
        found = self.parse_list(listed)
        if problem := container_limits.too_many(
            len(found) if len(listed.stdout) < SECTION else container_limits.MOST + 1
        ):
            return EngineFacts(version, error=problem)
        if not listed.ok:
            return EngineFacts(version, error=self.complaint(listed.out))
        engine = self._engine({**fields, "version": version}, others, found, asked, answered)
        beside = sections.get(other_engines.SECTION)
        return replace(
            engine,
            error=engine.error
            or (self.complaint("flock: not found") if "no flock" in others else None)
            or other_engines.unseen(self._node, beside.out if beside else ""),
            cgroup_parent=other_engines.parent_of(self._node, beside, fields.get("cgroups"), fields.get("security")),
        )

    def containers(self, task: str) -> Command:
        """Ask for the containers of one task: by its label, for they may have been renamed."""
        return self._script("docker-containers.sh.j2", filters=[f"label={TASK}={task}"], format=self._inspected)

    def inspect(self, containers: Sequence[str]) -> Command:
        """Ask for containers by their ids; one that is gone meanwhile is left out of the answer, which then fails."""
        return self._words("docker-inspect.j2", containers=containers, format=self._inspected)

    def parse_containers(self, result: Result, clock: float) -> tuple[Container, ...]:
        """The containers in an answer; lines that are none, like warnings, are left out."""
        found = []
        for line in result.stdout.splitlines():
            try:
                container = self._container(orjson.loads(line), clock)
                found.append(replace(container, signed=self._signer.has_signed(container.labels, self._node.name)))
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
        return tuple(found)

    def excess(self, containers: Sequence[Container]) -> str | None:
        """Why these containers are more than can be kept track of, None when they are not."""
        return container_limits.too_many(len(containers)) or container_limits.too_long(containers)

    def endless(self, containers: Iterable[Container]) -> str | None:
        """That one of them claims what cannot be read to its end, None when all can be."""
        endless = next(
            (c for c in containers if c.live and len(c.labels.get(GPUS, "")) >= container_limits.WORDS), None
        )
        if endless is None:
            return None
        return (
            f"container {endless.id[:12]} claims more GPUs than there can be; remove it, or start it without that label"
        )

    def says_gone(self, result: Result, missing: Iterable[str]) -> bool:
        """Whether an answer of `inspect` says of all these containers that they are gone, and not merely nothing."""
        words = result.err.lower()
        return all(f"no such object: {container}" in words for container in missing)

    def has_ended_so(self, container: Container, status: str) -> bool:
        """Whether this is what the list says of a container that has ended as we know it: nothing is new about it.

        To inspect one takes the engine longer than to list ten.
        """
        return container.state == "exited" and status.startswith(f"Exited ({container.exit_code})")

    def events(self, since: float) -> Command:
        """The stream of changes to our containers, each a line: what has happened, the container's id, the task's.

        `since` is Unix seconds by the node's own clock.
        """
        return self._words(
            "docker-events.j2",
            since=f"{since:.3f}",
            format=f'{{{{.Action}}}} {{{{.Actor.ID}}}} {{{{printf "%.200s" (index .Actor.Attributes "{TASK}")}}}}',
        )

    def logs(self, container: str, query: LogQuery) -> Command:
        """The container's two streams as a stream."""
        since = query.place.since if query.place else None
        since = query.since if since is None else since
        return self._words(
            "docker-logs.j2",
            docker=self._quiet,
            container=container,
            follow=query.follow,
            tail=None if query.position else query.tail,
            since=None if since is None else f"{since:.9f}",
            timestamps=query.timestamps or (query.resumable and self._times_are_exact),
        )

    def reading(self, query: LogQuery) -> Reading:
        """What that prints is the task's output, but for what the command warns of; or with times to resume by."""
        if query.resumable and self._times_are_exact:
            return StampedReading(query.place, shown=query.timestamps)
        return WithoutWarnings(AsItIs(), self.warnings)

    def shell(self, container: str, command: Sequence[str], mark: str, *, terminal: bool) -> Command:
        """A program in the container, with the input and the terminal of the script; when those break off, it ends.

        Its output begins with the mark and a semicolon. Without a terminal the script wants its input in lines, each of
        `escaped` bytes, or a dot for the end. Without a command it is bash, or sh where there is none.
        """
        command = command or ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
        return self._script(
            "docker-shell.sh.j2",
            docker=self._quiet,
            container=container,
            command=command,
            mark=mark,
            terminal=terminal,
        )

    def copy(self, container: str, path: str, *, into: bool) -> Command:
        """A tar stream of what is at a path in the container, or one that goes `into` a folder there."""
        return self._words("docker-cp.j2", docker=self._quiet, container=container, path=path, into=into)

    def copy_packed(self, container: str, path: str) -> Command:
        """A tar stream of what is at a path in the container, compressed by gzip if the node has that."""
        template, docker = self._template("docker-cp.j2"), self._quiet
        copy = self._renderer.words(template, docker=docker, container=container, path=path, into=False)
        return self._script("cp-packed.sh.j2", copy=copy)

    # ---------------------------------------------------------------- changing

    def launch(
        self,
        task: Task,
        placement: Placement,
        secrets: Mapping[str, str],
        prepared: Prepared | None = None,
        engine: EngineFacts | None = None,
    ) -> Command:
        """A single launch; `prepared` has the task's files, `engine` is the node's as it has answered last."""
        return self.launches([Launch(task, placement, secrets, prepared, engine)])

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """Lock, check, create, and start without the lock, as one script; `parse_launch` reads its answer.

        Several must have the same secrets; `answers` takes their answer apart. Raises RuntimeFailed when the value of a
        secret is gone: docker would leave the variable out without a word.
        """
        secrets = wanted[0].secrets
        for each in wanted:
            check_secrets(each.task.spec, each.secrets)
        docker = self._docker
        if secrets and docker[0].rpartition("/")[2] == "sudo":
            docker = [docker[0], f"--preserve-env={','.join(sorted(secrets))}", *docker[1:]]
        docker = self._under_lock(docker)
        creations = [self._creation(each, docker) for each in wanted]
        engine = {
            "format": self._live,
            "state_format": self._state,
            "many": len(wanted) > 1,
            "clear": self._template("docker-clear.sh.j2"),
        }
        begin = self._template("docker-begin.sh.j2")
        gpus = dict.fromkeys(uuid for each in wanted for uuid in each.placement.gpu_uuids)
        script = self._renderer.script(
            "docker-launch.sh.j2",
            docker=self._under_lock(self._docker),
            lock_wait=LOCK_WAIT,
            live=self._template("docker-live.sh.j2"),
            live_format=f"{self._signed}|{self._live}",
            **other_engines.claims(list(gpus), self._node, LIVE),
            volume_format=MARK,
            makes_volumes=self._makes_volumes,
            image_format=_ID,
            launches=creations,
            secrets=sorted(secrets),
            start=self._renderer.script("docker-start.sh.j2", docker=self._docker, begin=begin, **engine),
            **engine,
        )
        return Command(script, secrets=dict(secrets), timeout=LOCK_WAIT + 100.0)

    def _creation(self, wanted: Launch, docker: list[str]) -> dict[str, Any]:
        """What the script has to know of one launch; `docker` are the words that create its container."""
        task, placement, prepared = wanted.task, wanted.placement, wanted.prepared
        spec = task.spec
        name = self._name(task, placement)
        labels = self._signer.sign(labels_of(task, placement, self._signer.controller), self._node.name)
        parent = wanted.engine.cgroup_parent if wanted.engine else None
        create = self._renderer.words(
            self._template("docker-run.j2"),
            docker=docker,
            name=name,
            labels=labels,
            gpu_uuids=placement.gpu_uuids,
            env={
                "AGENTLESS_TASK_ID": task.id,
                "AGENTLESS_NODE": placement.node,
                "AGENTLESS_GPUS": ",".join(map(str, placement.gpus)),
                **spec.env,
            },
            secret_env=spec.secret_env,
            cores=spec.cores,
            cpus=placement.cpus,
            numa=placement.numa,
            memory=spec.memory,
            shm_size=spec.shm_size,
            mounts=self.volumes.mounts(spec, task.owner),
            workdir=prepared.workdir if prepared else spec.workdir,
            user=spec.user,
            network=spec.network,
            privileged=spec.privileged,
            stop_grace=max(1, round(spec.stop_grace)),
            cgroup_parent=other_engines.group(task, placement, parent) if parent else None,
            image=prepared.image if prepared else spec.image,
            command=spec.command,
        )
        create = [*docker, *_not_started(create[len(docker) :], len(spec.command))]
        claim = (GPUS, EXCLUSIVE, GPU_SHARE, GPU_MEMORY, TASK, OWNER)
        return {
            "create": create,
            "name": name,
            "signature": labels[SIGNATURE],
            "claimed": "|".join(labels[label] for label in claim),
            "gpu_uuids": placement.gpu_uuids,
            "gpu_total": placement.gpu_total,
            "exclusive": spec.needs.exclusive,
            "sharing": spec.needs.sharing,
            "volumes": [volume.name for volume in spec.volumes],
            "owner": task.owner,
            "image": spec.image,
            "image_id": spec.image_id,
        }

    def answers(self, count: int, result: Result) -> list[Result]:
        """The answers to so many launches in one script, each as if it had been alone."""
        answered = self.answered(count, result.stdout)
        if not answered:
            return [result] * count
        # One that says nothing any more, after others have answered, has broken off.
        return [answered.get(at, Result(_UNCLEAR)) for at in range(count)]

    def answered(self, count: int, out: bytes) -> dict[int, Result]:
        """Those that are whole already in what the script has said so far, by their places."""
        if count == 1:
            return {}
        words: list[list[bytes]] = [[] for _ in range(count)]
        found: dict[int, Result] = {}
        # What follows the last newline is a line that was cut off.
        for number, kind, rest in _ANSWER.findall(out[: out.rfind(b"\n") + 1]):
            at = int(number) - 1
            if at < count and kind == b"|":
                words[at].append(rest)
            elif at < count and rest.isdigit():
                text = b"\n".join(words[at])
                found[at] = Result(int(rest[:3]), text, text)
        return found

    def parse_launch(self, task: Task, result: Result) -> str:
        """The id of the started container.

        Raises Held naming the holder, Refused when the lock was not to be had, ImageMissing, RuntimeFailed,
        NodeUnfit or NodeBroken with the fix (then nothing of it is on the node), or NoAnswer when the container may be
        there all the same and has to be looked for.
        """
        if result.ok:
            ids = _CONTAINER_ID.findall(result.out)
            if ids:
                return str(ids[-1])
            raise NoAnswer(f"{self._node.name} said nothing about the container it started")
        check_claims(task, self._node, result)
        if result.exit_code == STRANGE:
            name = result.out.strip().rpartition("volume|")[2]
            raise RuntimeFailed(f"{self._node.name}: {strange(name)}")
        complaint = _AFTER_START.sub("", result.err).strip()
        if result.exit_code == _OTHER_IMAGE:
            raise ImageMissing(f"{task.spec.image} is not on {self._node.name}, or is another image there")
        if f"{NAME}/" in complaint and "image" in complaint:
            raise FilesMissing(f"the files of task {task.id} are not on {self._node.name} any more")
        if self._lacks_image(complaint):
            raise ImageMissing(f"image {task.spec.image} is not on {self._node.name}")
        # Who has what is listed before anything of the task is looked at.
        reason = "engine" if result.exit_code == UNLISTED else self._blame(without_words_of(task.spec, complaint))
        raise launch_failure(f"{self._node.name}: {self.complaint(complaint)}", reason)

    def pull(self, image: str) -> Command:
        """Fetch an image, outside the lock."""
        return self._words("docker-pull.j2", image=image)

    def signal(self, container: str, signal: str) -> Command:
        """Send the container's first process a signal, by its name without SIG."""
        return self._words("docker-kill.j2", container=container, signal=signal)

    def pause(self, container: str) -> Command:
        """Freeze."""
        return self._words("docker-pause.j2", container=container)

    def resume(self, container: str) -> Command:
        """Thaw."""
        return self._words("docker-unpause.j2", container=container)

    def remove(self, container: str, *, force: bool = False) -> Command:
        """Remove the container with its log."""
        return self._words("docker-rm.j2", container=container, force=force)

    def reap(self, container: str) -> Command:
        """Under the lock of the launches, remove a container that was never started, unless it has been meanwhile."""
        return self._script(
            "docker-reap.sh.j2",
            docker=self._under_lock(self._docker),
            lock_wait=LOCK_WAIT,
            format=self._state,
            container=container,
        )

    def check(self, result: Result) -> None:
        """Raise RuntimeFailed with the engine's complaint unless the command worked."""
        if not result.ok:
            raise RuntimeFailed(f"{self._node.name}: {self.complaint(result.err.strip() or result.out.strip())}")

    def complaint(self, words: str) -> str:
        """What the engine complains of, as a sentence with the fix."""
        return explain(words, self._node)

    def _blame(self, words: str) -> Blame:
        """The reason of a launch that failed with these words."""
        return blame(words)

    # ---------------------------------------------------------- a log that is kept

    def log_sizes(self, container: str) -> Command:
        """The bytes of the container's two streams, each number on its stream."""
        return self._log_ends(container, ["wc", "-c"], ["wc", "-c"])

    def log_ends(self, container: str, out: int, err: int) -> Command:
        """The last `out` bytes of its standard output and the last `err` bytes of its standard error."""
        return self._log_ends(container, ["tail", "-c", out], ["tail", "-c", err])

    def _log_ends(self, container: str, of_stdout: list[object], of_stderr: list[object]) -> Command:
        return self._script(
            "docker-log-ends.sh.j2", docker=self._quiet, container=container, of_stdout=of_stdout, of_stderr=of_stderr
        )

    # ------------------------------------- what an engine like it does otherwise

    def _template(self, name: str) -> str:
        """The template to take for this one of Docker's."""
        return name

    def _under_lock(self, docker: list[str]) -> list[str]:
        """The words that call it in a script that holds the lock of the launches, which it may hold, too."""
        return docker

    def _name(self, task: Task, placement: Placement) -> str:  # noqa: ARG002 - podman's has the place in it
        """The name of the task's container."""
        return task.container_name

    def _engine(
        self,
        fields: Mapping[str, object],
        others: Sequence[str],
        listed: Mapping[str, str],
        asked: float,
        answered: float,
    ) -> EngineFacts:
        """What it says of itself, by the fields of its answer and the other lines."""
        nvidia = "nvidia" in (fields.get("runtimes") or ()) or any("/nvidia-c" in line for line in others)  # type: ignore[operator]
        clock = ahead(seconds(fields.get("time")), asked, answered)
        engine_id = str(fields.get("id") or "")[:100] or None
        return EngineFacts(str(fields["version"]), nvidia, None, None, listed, clock, _lacks(fields), engine_id)

    def _container(self, fields: Mapping[str, object], clock: float) -> Container:
        """A container by the fields of `inspect`; raises as `dict` does for what is none."""
        return container_of_fields(fields, clock)

    def _lacks_image(self, complaint: str) -> bool:
        """Whether it says that the image is not there."""
        return "No such image" in complaint or "Unable to find image" in complaint

    # ------------------------------------------------------------------ inside

    def _words(self, template: str, **values: object) -> Command:
        values = {"docker": self._docker, **values}
        return Command(shlex.join(self._renderer.words(self._template(template), **values)) + "\n")

    def _script(self, template: str, **values: object) -> Command:
        return Command(self._renderer.script(self._template(template), **{"docker": self._docker, **values}) + "\n")


def _not_started(words: list[str], command: int) -> list[str]:
    """The words that create a container; an own template of before has those that run it at once.

    Run, it would be started under the lock, and a short one again after its end. `command` words at the end are the
    task's.
    """
    end = len(words) - command
    verb = next((at for at, word in enumerate(words[:end]) if word in ("create", "run")), None)
    if verb is None or words[verb] == "create":
        return words
    return [*words[:verb], "create", *(word for word in words[verb + 1 : end] if word not in _DETACH), *words[end:]]


def is_container_id(word: str) -> bool:
    """Whether an engine gives such an id."""
    return _CONTAINER_ID.fullmatch(word) is not None


class AsItIs:
    """A reading of what is the task's output as it is."""

    place = None

    def __call__(self, fd: int, data: bytes) -> Iterable[tuple[int, bytes]]:
        """That."""
        return ((fd, data),)


def check_secrets(spec: TaskSpec, secrets: Mapping[str, str]) -> None:
    """Raise RuntimeFailed when the value of a secret that the task is to have is gone."""
    if missing := sorted(set(spec.secret_env).difference(secrets)):
        raise RuntimeFailed(f"the value of the secret {missing[0]} is gone; submit the task again")


def check_claims(task: Task, node: NodeConfig, result: Result) -> None:
    """Raise what a launch that failed says of the lock and of those who hold GPUs, as `parse_launch` does."""
    if result.exit_code == _HELD:
        raise Held(_held(task, node, result.out))
    if result.exit_code == other_engines.UNSEEN and (unseen := other_engines.unseen(node, result.out)):
        raise Unseen(unseen)
    if result.exit_code == _LOCKED:
        raise Refused(f"{node.name}: other launches held this node's lock for {LOCK_WAIT} s; try again")
    if result.exit_code == _UNCLEAR or result.exit_code > 127:
        raise NoAnswer(f"{node.name} may have started task {task.id}, or not: the launch was interrupted")


def _lacks(fields: Mapping[str, object]) -> frozenset[Control]:
    """The control groups that `docker info` says are not there; a rootless engine without systemd has none at all."""
    if fields.get("cgroups") == "none":
        return frozenset(get_args(Control))
    limits: tuple[Control, ...] = "memory", "cpu", "cpuset"
    return frozenset(control for control in limits if fields.get(control) is False)


def launch_failure(sentence: str, reason: Blame) -> AgentlessError:
    """The error for a launch that has failed and left nothing on the node."""
    if reason == "task":
        return RuntimeFailed(sentence)
    return NodeUnfit(sentence) if reason == "fit" else NodeBroken(sentence, reason)


def _held(task: Task, node: NodeConfig, output: str) -> str:
    placement = task.placement or Placement(node.name)
    index = dict(zip(placement.gpu_uuids, placement.gpus, strict=True))
    held = [line.split("|", 3)[1:] for line in output.splitlines() if line.startswith("held|")]
    words = [
        f"GPU {index.get(gpu, gpu)} is held by {other_engines.holder(other)} of {owner}"
        if gpu
        else f"{node.name} is shared with nobody, and {other_engines.holder(other)} of {owner} is there"
        for gpu, other, owner in held
    ]
    full = [line.split("|")[1:] for line in output.splitlines() if line.startswith("full|")]
    words += [f"GPU {index.get(gpu, gpu)} has no share left beside the {count} it has given" for gpu, count in full]
    return f"{task.spec.needs}: " + "; ".join(words)


def container_of_fields(fields: Mapping[str, object], clock: float) -> Container:
    """A container by the fields that `inspect` was asked for; raises as `dict` does for what is none."""
    state: Mapping[str, object] = fields["state"]  # type: ignore[assignment]
    exit_code = state.get("ExitCode")
    ended = state["Status"] in ("exited", "dead")
    if not _CONTAINER_ID.fullmatch(str(fields["id"])):
        raise ValueError("no engine gives such an id")
    return Container(
        id=str(fields["id"]),
        name=str(fields["name"]).removeprefix("/"),
        state=state["Status"],  # type: ignore[arg-type]
        labels=dict(fields["labels"] or {}),  # type: ignore[call-overload]
        exit_code=exit_code if ended and isinstance(exit_code, int) and 0 <= exit_code <= 255 else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        created_at=seconds(fields.get("created")),
        started_at=seconds(state.get("StartedAt")),
        finished_at=seconds(state.get("FinishedAt")),
        clock=clock,
    )


def ahead(clock: float | None, asked: float, answered: float) -> float:
    """By how much a clock that was read between two moments of ours is ahead; 0 when it may well agree."""
    if clock is None or asked - CLOCKS_AGREE <= clock <= answered + CLOCKS_AGREE:
        return 0.0
    return clock - (asked + answered) / 2
