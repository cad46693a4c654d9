"""Docker, or an engine with its commands: renders `templates/docker/`, parses the answers. No I/O.

A container's facts come from `docker inspect`; its claim is in the labels that `model/containers/claim` writes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from agentless.engines import beside, launch_script
from agentless.engines.answers import parser
from agentless.engines.client_warnings import AsItIs, WithoutWarnings, warnings_before
from agentless.engines.dialect import Dialect, EngineAnswer
from agentless.engines.docker import checkup, trial
from agentless.engines.docker.commands import Commands
from agentless.engines.docker.complaints import without_words_of
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.envs import DockerEnvs
from agentless.engines.docker.files import DockerFiles
from agentless.engines.docker.images import DockerImages
from agentless.engines.docker.terminal import DockerTerminal
from agentless.engines.docker.timestamps import StampedReading
from agentless.engines.docker.volumes import MARK, NOT_OURS, DockerVolumes, not_ours
from agentless.errors import FilesMissing, ImageMissing, NoAnswer, RuntimeFailed
from agentless.gpus.vendors import GpuVendors
from agentless.model.command import SECTION, Command, Result, Section
from agentless.model.containers.claim import EXCLUSIVE, GPU_MEMORY, GPU_SHARE, GPUS, OWNER, TASK, labels_of
from agentless.model.containers.container import CONTAINER_ID, Container, is_container_id
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.containers.signature import SIGNATURE, Signer
from agentless.model.files.files_image import NAME
from agentless.model.images.env import is_ours
from agentless.model.nodes.checkup import EngineCheckup
from agentless.model.nodes.complaint import Blame
from agentless.model.nodes.engine import Injection
from agentless.model.nodes.node import EngineFacts, NodeConfig, with_node
from agentless.model.nodes.trial import TrialAnswer
from agentless.model.tasks.gang import GANG_KEY
from agentless.model.tasks.task import Placement, Task
from agentless.model.text import cut
from agentless.ports import Reading
from agentless.render import Renderer
from agentless.rules.nodes import container_limits
from agentless.rules.tasks.gangs.launchers import launched_command
from agentless.rules.tasks.settings import with_settings
from agentless.rules.workflows.carried import HEAD, JOBS, MAX_HEAD, MAX_JOBS, MOST_CARRIED

_ID = "{{.Id}}"
_STATUS = "{{.State.Status}}"
_LISTING = "{{.ID}} {{.Status}}"
_LISTED = re.compile("[0-9a-f]{64} ")
_AFTER_START = re.compile(r"Error: failed to start containers: [0-9a-f]{64}\s*")
"""What `docker start` says after the cause."""
_CLAIM = (GPUS, EXCLUSIVE, GPU_SHARE, GPU_MEMORY, TASK, OWNER)
_DETACH = frozenset({"-d", "--detach", "--detach=true"})


class DockerEngine:
    """The container engine of one node, called by the inventory's `docker` command; a `ports.ContainerEngine`.

    All that depends on which engine it is comes from the dialect.
    """

    at_once = of_a_batch = 8
    program = "docker run"

    def __init__(
        self, node: NodeConfig, renderer: Renderer, signer: Signer, vendors: GpuVendors, dialect: Dialect = DOCKER
    ) -> None:
        self._node = node
        self._signer = signer
        self._dialect = dialect
        self._vendors = vendors
        self._renderer = renderer
        self._commands = commands = Commands(node, renderer, dialect)
        self._warnings: tuple[str, ...] = ()
        self.images = DockerImages(commands, self.complaint)
        self.envs = DockerEnvs(commands, self.complaint, vendors) if dialect.keeps_envs else None
        self.files = DockerFiles(commands)
        self.volumes = DockerVolumes(commands, self.complaint)
        self.terminal = DockerTerminal(commands, lambda: self._warnings)

    # ------------------------------------------------------------------ asking

    def facts(self) -> tuple[Section, ...]:
        """Ask for its version and GPU toolkits, our containers, and other engines on the node."""
        asked = self._commands.script(
            "docker-facts.sh.j2", format=self._dialect.formats.info, toolkits=self._vendors.toolkits
        )
        return (
            Section("docker.info", asked.script),
            Section("docker.containers", self.listing().script),
            beside.facts(self._renderer, self._node, self._dialect),
        )

    def listing(self) -> Command:
        """List our containers."""
        return self._commands.words("docker-list.j2", format=_LISTING)

    def parse_list(self, result: Result) -> dict[str, str]:
        """The listed ids, each with the engine's words for its state."""
        return dict(line.split(" ", 1) for line in result.out.splitlines() if _LISTED.match(line))

    def parse_facts(self, sections: Mapping[str, Result], asked: float, answered: float) -> EngineFacts:
        """The engine's state, from an answer between two moments (Unix seconds, our clock)."""
        info = sections.get("docker.info")
        listed = sections.get("docker.containers")
        if info is None or listed is None:
            return EngineFacts(error="its answer about Docker was cut off")
        # The answer is one line: sudo and docker print warnings before it, newer dockers print their errors after it.
        lines = info.out.splitlines()
        answer = next((line for line in lines if line.startswith("{")), "{}")
        others = [line for line in lines if line.strip() and line != answer]
        try:
            fields = self._dialect.read_info(orjson.loads(answer))
        except orjson.JSONDecodeError:
            fields = {}
        version = cut(str(fields.get("version") or ""), 64)
        if not info.ok or not version:
            return EngineFacts(error=self.complaint("; ".join(fields.get("errors") or others)))
        self._warnings = warnings_before(answer, lines)
        found = self.parse_list(listed)
        if problem := container_limits.too_many(
            len(found) if len(listed.stdout) < SECTION else container_limits.MOST + 1
        ):
            return EngineFacts(version, error=problem)
        if not listed.ok:
            return EngineFacts(version, error=self.complaint(listed.out))
        engine = self._dialect.facts(
            EngineAnswer(
                node=self._node,
                fields={**fields, "version": version},
                lines=others,
                listed=found,
                engine=self._dialect.name,
                needed=self._vendors.toolkits,
                asked=asked,
                answered=answered,
            )
        )
        neighbours = sections.get(beside.SECTION)
        return replace(
            engine,
            error=engine.error
            or (self.complaint("flock: not found") if "no flock" in others else None)
            or beside.unseen(self._node, neighbours.out if neighbours else ""),
            cgroup_parent=beside.parent_of(self._node, neighbours, fields.get("cgroups"), fields.get("security")),
        )

    def checkup(self) -> Section:
        """Ask for what `doctor` wants to know of the engine."""
        return checkup.section(self._commands)

    @parser
    def parse_checkup(self, sections: Mapping[str, Result]) -> EngineCheckup | None:
        """The answer to that; None if it was cut off."""
        return checkup.parse(self._commands, sections)

    def containers(self, task: str) -> Command:
        """Ask for the containers of one task, by label: somebody may have renamed them."""
        return self._commands.script(
            "docker-containers.sh.j2", filters=[f"label={TASK}={task}"], format=self._dialect.formats.inspected
        )

    def inspect(self, containers: Sequence[str]) -> Command:
        """Describe containers by id. If one is gone, the answer lacks it and the command fails."""
        return self._commands.words("docker-inspect.j2", containers=containers, format=self._dialect.formats.inspected)

    def carried(self) -> Command:
        """Ask which containers carry a workflow, and for what it was like."""
        label = (self._dialect.formats.label % HEAD).removeprefix("{{").removesuffix("}}")
        line = f'{{{{.ID}}}} {{{{json (printf "%.{MAX_HEAD + 1}s" ({label}))}}}}'
        return self._commands.script("docker-carried.sh.j2", label=HEAD, format=line, most=MOST_CARRIED)

    def carried_jobs(self, containers: Sequence[str]) -> Command:
        """Ask for the jobs that these containers carry."""
        return self._commands.words(
            "docker-inspect.j2",
            containers=containers,
            format=f"{{{{.{self._dialect.id_field}}}}} "
            f'{{{{json (printf "%.{MAX_JOBS + 1}s" (or (index .Config.Labels "{JOBS}") ""))}}}}',
        )

    def parse_carried(self, result: Result) -> dict[str, str]:
        """The labels in either answer, by container. The last line may have been cut off."""
        found = dict[str, str]()
        for line in result.stdout.split(b"\n"):
            container, _, label = line.decode("utf-8", "replace").partition(" ")
            with contextlib.suppress(ValueError):
                if is_container_id(container):
                    found[container] = str(orjson.loads(label))
        return found

    def parse_containers(self, result: Result, clock: float) -> tuple[Container, ...]:
        """The containers in an answer. Other lines, such as warnings, are skipped."""
        found = []
        for line in result.stdout.splitlines():
            try:
                container = self._dialect.container(orjson.loads(line), clock)
                found.append(replace(container, signed=self._signer.has_signed(container.labels, self._node.name)))
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
        return tuple(found)

    def says_gone(self, result: Result, missing: Iterable[str]) -> bool:
        """Whether an answer of `inspect` says that all these containers are gone, rather than nothing about them."""
        words = result.err.lower()
        return all(re.search(self._dialect.gone.format(re.escape(one)), words) for one in missing)

    def has_ended_so(self, container: Container, status: str) -> bool:
        """Whether the list says of a container that it has ended, as is known already. Then it need not be inspected.

        The engine takes longer to inspect one than to list ten.
        """
        return container.state == "exited" and status.startswith(f"Exited ({container.exit_code})")

    def events(self, since: float) -> Command:
        """The stream of changes to our containers. Each is a line: the event, the container's id, the task's id.

        `since` is Unix seconds by the node's own clock.
        """
        return self._commands.words("docker-events.j2", since=f"{since:.3f}", format=self._dialect.formats.event)

    def logs(self, container: str, query: LogQuery) -> Command:
        """Print the container's log on the two streams."""
        since = query.place.since if query.place else None
        since = query.since if since is None else since
        return self._commands.words(
            "docker-logs.j2",
            docker=self._commands.quiet,
            container=container,
            follow=query.follow,
            tail=None if query.position else query.tail,
            since=None if since is None else f"{since:.9f}",
            timestamps=query.timestamps or (query.resumable and self._dialect.times_are_exact),
        )

    def reading(self, query: LogQuery) -> Reading:
        """Reads the task's output: it drops the command's warnings, or reads the times by which a log is resumed."""
        if query.resumable and self._dialect.times_are_exact:
            return StampedReading(query.place, shown=query.timestamps)
        return WithoutWarnings(AsItIs(), self._warnings)

    def filtered_logs(self, container: str, of_stdout: Sequence[str], of_stderr: Sequence[str]) -> Command:
        """Print the log that there is, each of the two streams through a program on the node."""
        return self._commands.script(
            "docker-log-ends.sh.j2",
            docker=self._commands.quiet,
            container=container,
            of_stdout=of_stdout,
            of_stderr=of_stderr,
        )

    # ---------------------------------------------------------------- changing

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """Lock, check, create, and start without the lock, as one script; `parse_launch` reads its answer.

        All have the same secrets; `answers` splits their answer. Raises RuntimeFailed for an env if the engine keeps
        none, and for a secret whose value is gone: docker would silently leave the variable out.
        """
        if self.envs is None and any(is_ours(each.task.spec.image or "") for each in wanted):
            raise RuntimeFailed(
                f"{self._node.name} uses {self._dialect.name}, which does not support envs; choose a node with "
                "Docker, or use --image"
            )
        secrets = wanted[0].secrets
        for each in wanted:
            launch_script.check_secrets_are_there(each.task.spec, each.secrets)
        docker = self._commands.docker
        if secrets and docker[0].rpartition("/")[2] == "sudo":
            docker = [docker[0], f"--preserve-env={','.join(sorted(secrets))}", *docker[1:]]
        docker = [*self._dialect.under_lock, *docker]
        creations = [self._creation(each, docker) for each in wanted]
        engine = {
            "format": self._dialect.formats.live,
            "state_format": self._dialect.formats.state,
            "many": len(wanted) > 1,
            "clear": self._dialect.template("docker-clear.sh.j2"),
        }
        begin = self._dialect.template("docker-begin.sh.j2")
        gpus = list(dict.fromkeys(uuid for each in wanted for uuid in each.placement.tokens))
        listed = [each["listed"] for each in creations] if all(each.created for each in wanted) else []
        launch = self._commands.script(
            "docker-launch.sh.j2",
            timeout=launch_script.WITHIN,
            **launch_script.lock_values(self._dialect, self._node, gpus, listed),
            volume_format=MARK,
            makes_volumes=self._dialect.makes_volumes,
            image_format=_ID,
            launches=creations,
            secrets=sorted(secrets),
            start=self._commands.text("docker-start.sh.j2", begin=begin, **engine),
            **engine,
        )
        return replace(launch, secrets=dict(secrets))

    def trial(self, wanted: Sequence[Launch], label: str, image: str | None) -> Command:
        """Launch containers one after the other, print what each prints, and remove it; see `parse_trial`."""
        return trial.command(self._commands, [self.launches([each]).script for each in wanted], label, image)

    def clear_trial(self, label: str, image: str | None) -> Command:
        """Remove what a trial has left whose script was ended."""
        return self._commands.script("docker-trial-clear.sh.j2", label=label, image=image or "")

    @parser
    def parse_trial(self, result: Result) -> list[TrialAnswer]:
        """What became of each; those whose turn did not come are missing. Raises RuntimeFailed."""
        try:
            return trial.parse(result)
        except RuntimeFailed as error:
            raise RuntimeFailed(f"{self._node.name}: {self.complaint(str(error))}") from None

    def _creation(self, wanted: Launch, docker: Sequence[str]) -> dict[str, Any]:
        """The template values of one launch. `docker` is the command with which its container is created."""
        task, placement, spec = wanted.task, wanted.placement, wanted.task.spec
        name = self._dialect.container_name(task, placement)
        lookup = self._injection(wanted).lookup
        labels = self._signer.sign(labels_of(task, placement, self._signer.controller), self._node.name)
        create = self._create(wanted, docker, name, {**labels, **wanted.labels})
        claimed = "|".join(labels[label] for label in _CLAIM)
        return {
            "create": create,
            # What is looked up on the node goes behind the engine's verb.
            "lookup": self._commands.text(lookup.template, **lookup.values) if lookup else "",
            "verb": create.index("create", len(docker)) + 1 if lookup else 0,
            "rootless": bool(wanted.engine and wanted.engine.rootless),
            "name": name,
            "signature": labels[SIGNATURE],
            "claimed": claimed,
            "created": wanted.created,
            "listed": f"{labels[SIGNATURE]}|{wanted.created}|{name}|Created|{claimed}",
            "gpu_uuids": placement.tokens,
            "gpu_total": placement.gpu_total,
            "exclusive": spec.needs.exclusive,
            "sharing": spec.needs.sharing,
            "volumes": [volume.name for volume in spec.volumes],
            "owner": task.owner,
            "held": wanted.held,
            "files": launch_script.gang_files(spec.gang) if wanted.held else "",
            "image": spec.image,
            "image_id": wanted.image_id or spec.image_id,
        }

    def _create(self, wanted: Launch, docker: Sequence[str], name: str, labels: Mapping[str, str]) -> list[str]:
        """The argv that creates the task's container."""
        task, placement, prepared = wanted.task, wanted.placement, wanted.prepared
        spec, parent = with_settings(task.spec, self._node), wanted.engine.cgroup_parent if wanted.engine else None
        reserved = self._vendors.reserved(self._dialect.name)
        # What has no command waits. It is not the image's own, which ends at once in images whose command is a shell.
        idle = () if spec.command or spec.traits.needs_command else ("sh",)
        script = self._commands.text
        command = (*idle, "-c", script("container-idle.sh.j2")) if idle else launched_command(spec, script)
        create = self._commands.argv(
            "docker-run.j2",
            docker=list(docker),
            name=name,
            labels=labels,
            gpu_uuids=placement.gpu_uuids,
            devices=self._injection(wanted),
            env=launch_script.variables(task, placement, self._node, spec, reserved),
            secret_env=(*spec.secret_env, *({GANG_KEY} & wanted.secrets.keys())),
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
            cgroup_parent=beside.group(task, placement, parent) if parent else None,
            image=prepared.image if prepared else spec.image,
            hostname=spec.name if spec.workload == "vps" and not spec.network else None,
            entrypoint=command[0] if idle else wanted.entrypoint,
            command=command[1:] if idle else command,
        )
        return [*docker, *_not_started(create[len(docker) :], len(command) - len(idle))]

    def _injection(self, wanted: Launch) -> Injection:
        """How the task gets its devices."""
        return self._vendors.injection(
            self._dialect.name, wanted.placement.devices, wanted.engine, unconfined=self._node.unconfined
        )

    def revival(self, task: Task, placement: Placement) -> Command:
        """Lock, check, and start the task's container again, unless somebody holds its GPUs; see `parse_launch`."""
        labels, sharing = labels_of(task, placement, self._signer.controller), task.spec.needs.sharing
        lookup = self._vendors.injection(self._dialect.name, placement.devices).lookup
        ways = [{**lookup.values, "cdi": by_cdi} for by_cdi in (False, True)] if lookup else []
        start = self._commands.text(
            "docker-revived.sh.j2", begin=self._dialect.template("docker-begin.sh.j2"), id_format=_ID
        )
        return self._commands.script(
            "docker-revive.sh.j2",
            **launch_script.lock_values(self._dialect, self._node, placement.tokens),
            timeout=launch_script.WITHIN,
            container=task.container_ref,
            devices_format=self._dialect.formats.devices,
            lookups=[self._commands.text(lookup.template, **way) for way in ways] if lookup else [],
            start=start,
            id_format=_ID,
            state_format=_STATUS,
            claimed="|".join(labels[label] for label in _CLAIM),
            gpu_uuids=placement.tokens,
            gpu_total=placement.gpu_total,
            exclusive=task.spec.needs.exclusive,
            sharing=sharing,
        )

    def answers(self, count: int, result: Result) -> list[Result]:
        """Split the answer to a script of `count` launches into one answer each."""
        return launch_script.answers(count, result)

    def answered(self, count: int, out: bytes) -> dict[int, Result]:
        """The answers that are complete in the output so far, by the place of the launch in the script."""
        return launch_script.answered(count, out)

    def parse_launch(self, task: Task, result: Result) -> str:
        """The id of the started container.

        Raises Held with the holder, Refused if the lock was taken, and ImageMissing, RuntimeFailed, NodeUnfit or
        NodeBroken with the fix: then nothing is left on the node. Raises NoAnswer if the container may exist and has to
        be looked for.
        """
        if result.ok:
            ids = CONTAINER_ID.findall(result.out)
            if ids:
                return str(ids[-1])
            raise NoAnswer(f"{self._node.name} did not report the container it started")
        launch_script.check_claims(task, self._node, result)
        if result.exit_code == NOT_OURS:
            name = result.out.strip().rpartition("volume|")[2]
            raise RuntimeFailed(f"{self._node.name}: {not_ours(name)}")
        complaint = _AFTER_START.sub("", result.err).strip()
        if result.exit_code == launch_script.OTHER_IMAGE:
            raise ImageMissing(
                f"{self._node.name} does not have {task.spec.image}, or has a different image of this name"
            )
        if f"{NAME}/" in complaint and "image" in complaint:
            raise FilesMissing(f"{self._node.name} no longer has the files of task {task.id}")
        if any(words in complaint for words in self._dialect.image_missing):
            raise ImageMissing(f"{self._node.name} does not have image {task.spec.image}")
        # Claims are listed before anything of the task itself can fail.
        reason = "engine" if result.exit_code == launch_script.UNLISTED else self._blame(task, complaint)
        raise launch_script.launch_failure(with_node(self._node.name, self.complaint(complaint)), reason)

    def signal(self, container: str, signal: str) -> Command:
        """Send the container's first process a signal, named without SIG."""
        return self._commands.words("docker-kill.j2", container=container, signal=signal)

    def pause(self, container: str) -> Command:
        """Freeze all processes."""
        return self._commands.words("docker-pause.j2", container=container)

    def resume(self, container: str) -> Command:
        """Let frozen processes run again."""
        return self._commands.words("docker-unpause.j2", container=container)

    def resize(self, container: str, cores: float | None, memory: int | None) -> Command:
        """Give a container these limits while it runs; None: as it is."""
        return self._commands.words("docker-update.j2", container=container, cores=cores, memory=memory)

    def cpu(self, containers: Sequence[str]) -> Command:
        """Ask for the processor time that containers have used."""
        return self._commands.script("docker-cpu.sh.j2", containers=containers)

    def parse_cpu(self, result: Result) -> dict[str, float]:
        """That time in seconds, by container; one that did not answer is missing."""
        found = re.findall(r"^(\S+) (usage_usec )?([0-9]{1,20})$", result.out, re.MULTILINE)
        return {container: int(number) / (1e6 if micro else 1e9) for container, micro, number in found}

    def remove(self, container: str, *, force: bool = False) -> Command:
        """Remove the container with its log."""
        return self.remove_all([container], force=force)

    def remove_all(self, containers: Sequence[str], *, force: bool = False) -> Command:
        """Remove containers with their logs; prints those that it has removed, as they are given."""
        timeout = 30.0 + 2.0 * (len(containers) - 1)
        return self._commands.words("docker-rm.j2", timeout=timeout, containers=list(containers), force=force)

    def reap(self, container: str) -> Command:
        """Under the launch lock, remove a container that was never started, unless it has been since."""
        return self._commands.script(
            "docker-reap.sh.j2",
            docker=self._commands.locked,
            lock_wait=launch_script.LOCK_WAIT,
            format=self._dialect.formats.state,
            container=container,
        )

    def undo(self, launch: Launch, *, force: bool = False) -> Command:
        """Under the launch lock, remove what this launch has created; with `force`, also if it was started."""
        task, placement = launch.task, launch.placement
        labels = self._signer.sign(labels_of(task, placement, self._signer.controller), self._node.name)
        return self._commands.script(
            "docker-undo.sh.j2",
            docker=self._commands.locked,
            lock_wait=launch_script.LOCK_WAIT,
            timeout=launch_script.WITHIN,
            name=self._dialect.container_name(task, placement),
            signature=labels[SIGNATURE],
            format=self._dialect.formats.live,
            state_format=self._dialect.formats.state,
            clear=self._dialect.template("docker-clear.sh.j2"),
            force=force,
        )

    def check(self, result: Result) -> None:
        """Raise RuntimeFailed with the engine's complaint unless the command worked."""
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self.complaint(result.err.strip() or result.out.strip())))

    def complaint(self, words: str) -> str:
        """The engine's complaint as a sentence with the fix."""
        return self._dialect.explain(words, self._node, self._vendors.complaints(self._dialect.name))

    # ------------------------------------------------------------------ inside

    def _blame(self, task: Task, complaint: str) -> Blame:
        words = without_words_of(with_settings(task.spec, self._node), complaint)
        return self._dialect.blame(words, self._vendors.complaints(self._dialect.name))


def _not_started(words: list[str], command: int) -> list[str]:
    """The argv that creates a container. A user's template from an early version may run it at once instead.

    Then it would start under the lock, and a short task would start again after its end. The last `command` words are
    the task's own.
    """
    end = len(words) - command
    verb = next((at for at, word in enumerate(words[:end]) if word in ("create", "run")), None)
    if verb is None or words[verb] == "create":
        return words
    return [*words[:verb], "create", *(word for word in words[verb + 1 : end] if word not in _DETACH), *words[end:]]
