"""systemd: a task that runs on the node itself, as a transient service. No I/O, like `engines/docker`.

The unit `agentless-<task id>.service` takes the place of a container. A container's labels are in its environment,
packed. Its claim is an argument of its main process, which lives as long as the command, so that every launch on the
node sees it, whichever manager the unit belongs to. The unit's facts are properties that `systemctl show` prints
(org.freedesktop.systemd1); its log is in the journal, under the unit's name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agentless.engines import launch_script
from agentless.engines.dialect import Dialect
from agentless.engines.docker.complaints import blame, explain, without_words_of
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.systemd.journal import JournalReading
from agentless.engines.systemd.terminal import SystemdTerminal
from agentless.errors import NoAnswer, RuntimeFailed
from agentless.gpus.vendors import GpuVendors
from agentless.model.command import Command, Result, Section
from agentless.model.containers.claim import labels_of, terms_of
from agentless.model.containers.container import Container, ContainerState
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.containers.signature import Signer
from agentless.model.nodes.complaint import Blame
from agentless.model.nodes.node import EngineFacts, NodeConfig, with_node
from agentless.model.tasks.spec import SHELL_VARIABLES
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.terms import SIGNALS
from agentless.model.text import printable
from agentless.ports import Reading
from agentless.render import Renderer
from agentless.rules.nodes import container_limits
from agentless.rules.tasks.settings import with_settings

LABELS = "AGENTLESS_LABELS"
_LISTED = 4 << 20
"""Bytes of the answer about our units: 2,000 of them have 3 MB."""

_SECTION = "systemd.units"
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,FreezerState,MainPID,Result,ExecMainCode,ExecMainStatus,"
    "ExecMainStartTimestamp,ExecMainExitTimestamp,Environment"
)
_UNIT = re.compile(r"agentless-[0-9a-zA-Z-]+\.service")
_WATCHED = re.compile(r"(live|over|gone) agentless-([0-9a-zA-Z-]+)\.service")
_PACKED = re.compile(rf"{LABELS}=([A-Za-z0-9_=-]+)")
_TIME = re.compile(r"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?) UTC")
_ODD = re.compile(r"[^A-Za-z0-9@._+:,/-]")

_UNSUITABLE = 79
_CUDA = "CUDA_HOME"
_REASONS = {
    "without": "no systemd on {node} (its first process is {what}); run the task in a container with --image",
    "hidden": (
        "{what} on {node} hides which processes hold GPUs (hidepid); mount it without hidepid, or run the task in a "
        "container with --image"
    ),
    "linger": (
        "on {node} agentless can only use the systemd of user {what}, which ends when {what} logs out; on the node, "
        "run: sudo loginctl enable-linger {what}"
    ),
    "user": (
        "on {node} agentless can only use the systemd of user {what}, which cannot run tasks as another user; omit "
        "--user"
    ),
    "cuda": "{node} has no folder {what}; correct cuda: in the inventory, or remove it to use what the node has",
    "limit": (
        "the user's systemd on {node} cannot limit {what}; omit {option}, or log in as root or a user with sudo "
        "rights for systemd-run and systemctl"
    ),
}
# systemd.exec(5), "Process exit codes": what systemd itself could not do before the command ran.
_STATUSES = {
    200: "{node} has no folder {workdir}, or the user cannot enter it",
    202: "systemd on {node} cannot create the task's standard input; install systemd 240 or newer",
    209: "systemd on {node} cannot open the task's standard input; install systemd 240 or newer",
    216: "{node} has no such group ({user})",
    217: "{node} has no user {user}",
    242: "{node} cannot bind memory to one NUMA node; omit the NUMA node",
}


class Systemd:
    """The service managers of one node, the system's and the user's own; a `ports.HostEngine`.

    `dialect` is that of the node's container engine: its containers have claims, too.
    """

    at_once = of_a_batch = 1
    program = "systemd-run"
    images = volumes = files = envs = None

    def __init__(
        self, node: NodeConfig, renderer: Renderer, signer: Signer, vendors: GpuVendors, dialect: Dialect = DOCKER
    ) -> None:
        self._node = node
        self._vendors = vendors
        self._dialect = dialect
        self._signer = signer
        self._renderer = renderer
        self.terminal = SystemdTerminal(self._of, renderer.script)

    # ------------------------------------------------------------------ asking

    def facts(self) -> tuple[Section, ...]:
        """Ask for all our units."""
        return (Section(_SECTION, self._units(None), _LISTED),)

    def parse_facts(self, sections: Mapping[str, Result], asked: float, answered: float) -> EngineFacts:
        """The units in the answer, as `containers`; `error` if there are too many."""
        del asked, answered  # its clock is the engine's
        answer = sections.get(_SECTION)
        units = self._units_in(answer, 0.0) if answer and answer.ok else None
        if units is not None or answer is None or not (answer.ok or len(answer.stdout) >= _LISTED):
            return EngineFacts(containers=units)
        return EngineFacts(
            error=(
                "too many services of agentless, or their descriptions are too long; on the node, run: systemctl "
                "list-units --all 'agentless-*'"
            )
        )

    def containers(self, task: str) -> Command:
        """Ask for the unit of one task."""
        return Command(self._units(f"agentless-{task}.service") + "\n")

    def parse_containers(self, result: Result, clock: float) -> tuple[Container, ...]:
        """The units in an answer."""
        return self._units_in(result, clock) or ()

    def _units_in(self, result: Result, clock: float) -> tuple[Container, ...] | None:
        """The units in an answer, None if their unpacked labels are too long."""
        found, left = list[Container](), container_limits.LABELS
        for block in re.split(r"\n{2,}", result.out):
            if unit := _unit(dict(line.split("=", 1) for line in block.splitlines() if "=" in line), clock):
                found.append(replace(unit, signed=self._signer.has_signed(unit.labels, self._node.name)))
                left -= sum(map(len, unit.labels.values()))
            if left < 0:
                return None
        return tuple(found)

    def watch(self, beside: Command) -> Command:
        """A stream of what happens to units, see `parse_watched`, and of all that the command `beside` prints."""
        return self._script("systemd-watch.sh.j2", beside=beside.script)

    def parse_watched(self, line: str) -> tuple[str, str] | None:
        """`live`, `over` or `gone`, and the task's id; None for a line of the other stream."""
        match = _WATCHED.fullmatch(line)
        return (match[1], match[2]) if match else None

    def logs(self, container: str, query: LogQuery) -> Command:
        """Print the journal's entries of the unit."""
        since = None if query.since is None else f"{query.since:.6f}"
        return self._of(
            container,
            "systemd-logs.sh.j2",
            identifier=_name(container),
            follow=query.follow,
            tail=query.tail,
            since=since,
        )

    def reading(self, query: LogQuery) -> Reading:
        """Reads the task's output from the journal's entries."""
        return JournalReading(timestamps=query.timestamps)

    def filtered_logs(self, container: str, of_stdout: Sequence[str], of_stderr: Sequence[str]) -> Command:
        """Print the log that there is, each of the two streams through a program on the node."""
        return self._of(
            container,
            "systemd-log-ends.sh.j2",
            identifier=_name(container),
            of_stdout=of_stdout,
            of_stderr=of_stderr,
        )

    # ---------------------------------------------------------------- changing

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """Lock, check, `systemd-run` as one script for the only one; `parse_launch` reads its answer.

        Raises RuntimeFailed when the value of a secret is gone.
        """
        (one,) = wanted
        task, placement, secrets, spec = one.task, one.placement, one.secrets, one.task.spec
        launch_script.check_secrets_are_there(spec, secrets)
        name, user = task.container_name, (spec.user or "").partition(":")
        whole, reserved = with_settings(spec, self._node), self._vendors.reserved("systemd")
        cuda = whole.env.get(_CUDA)
        given = sorted(SHELL_VARIABLES.intersection(whole.env))
        devices = self._vendors.injection("systemd", placement.devices)
        lookup = devices.lookup
        program = self._renderer.script(
            "systemd-task.sh.j2",
            env={
                **devices.environment,
                **launch_script.variables(task, placement, self._node, whole, reserved),
            },
            own=whole.env_names,
            given=given,
            cuda=cuda or self._node.cuda,
            signals=SIGNALS,
            identifier=name,
            command=spec.command,
        )
        script = self._renderer.script(
            "systemd-launch.sh.j2",
            **launch_script.lock_values(self._dialect, self._node, placement.tokens),
            unit=f"{name}.service",
            name=name,
            gpu_uuids=placement.tokens,
            exclusive=spec.needs.exclusive,
            sharing=spec.needs.sharing,
            gpu_total=placement.gpu_total,
            properties=[*_properties(task, placement, user[2]), f"--setenv={LABELS}={self._packed(task, placement)}"],
            user=user[0],
            cuda=None if cuda else self._node.cuda,
            controllers=[*["cpu"] * (spec.cores is not None), *["memory"] * (spec.memory is not None)],
            secret_env=spec.secret_env,
            program=program,
            lookup=self._renderer.script(lookup.template, **lookup.values) if lookup else "",
            claim=_claim(task, placement),
        )
        return Command(script + "\n", secrets=dict(secrets), timeout=launch_script.WITHIN)

    def answers(self, count: int, result: Result) -> list[Result]:
        """The only answer."""
        return [result] * count

    def answered(self, count: int, out: bytes) -> dict[int, Result]:  # noqa: ARG002 - that is not known before its end
        """None before the script has ended."""
        return {}

    def parse_launch(self, task: Task, result: Result) -> str:
        """The unit that was started.

        Raises Held with the holder, Refused if the lock was taken, and RuntimeFailed or NodeBroken with the fix: then
        nothing is left on the node. Raises NoAnswer if the unit may exist and has to be looked for.
        """
        if result.ok:
            if ids := _UNIT.findall(result.out):
                return str(ids[-1])
            raise NoAnswer(f"{self._node.name} did not report the service it started")
        launch_script.check_claims(task, self._node, result)
        if result.exit_code == _UNSUITABLE:
            kind, _, what = result.out.strip().splitlines()[-1].partition("|")
            raise RuntimeFailed(with_node(self._node.name, self._unsuitable(task, kind, what)))
        said = result.err.strip()
        reason = "engine" if result.exit_code == launch_script.UNLISTED else self._blame(task, said)
        raise launch_script.launch_failure(with_node(self._node.name, self.complaint(said)), reason)

    def signal(self, container: str, signal: str) -> Command:
        """Send its first process a signal, by its name without SIG; KILL goes to all of them."""
        return self._of(container, "systemd-signal.sh.j2", signal=signal)

    def pause(self, container: str) -> Command:
        """Freeze all processes."""
        return self._of(container, "systemd-pause.sh.j2")

    def resume(self, container: str) -> Command:
        """Let frozen processes run again."""
        return self._of(container, "systemd-resume.sh.j2")

    def remove(self, container: str, *, force: bool = False) -> Command:
        """Let systemd forget the unit. What the journal has of it stays until the journal is full."""
        return self._of(container, "systemd-remove.sh.j2", missing=0, force=force)

    def check(self, result: Result) -> None:
        """Raise RuntimeFailed with systemd's complaint unless the command worked."""
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self.complaint(result.err.strip() or result.out.strip())))

    def complaint(self, words: str) -> str:
        """The complaint as a sentence with the fix."""
        return explain(words, self._node, self._vendors.complaints(self._dialect.name))

    # ------------------------------------------------------------------ inside

    def _blame(self, task: Task, said: str) -> Blame:
        return blame(without_words_of(task.spec, said), self._vendors.complaints(self._dialect.name))

    def _script(self, template: str, **values: object) -> Command:
        return Command(self._renderer.script(template, **values) + "\n")

    def _of(self, container: str, template: str, *, missing: int = 1, **values: object) -> Command:
        return self._script(template, unit=f"{_name(container)}.service", missing=missing, **values)

    def _units(self, unit: str | None) -> str:
        return self._renderer.script("systemd-units.sh.j2", unit=unit, properties=_PROPERTIES)

    def _packed(self, task: Task, placement: Placement) -> str:
        labels = self._signer.sign(labels_of(task, placement, self._signer.controller), self._node.name)
        return launch_script.packed(labels)

    def _unsuitable(self, task: Task, kind: str, what: str) -> str:
        node, user = self._node.name, task.spec.user or ""
        if kind == "status":
            words = _STATUSES.get(int(what), "systemd on {node} could not start the task (status {status})")
            return words.format(node=node, workdir=task.spec.workdir or "~", user=user, status=what)
        if kind not in _REASONS:
            raise NoAnswer(f"{node} may have started task {task.id}: unexpected answer from the launch script")
        option = {"cpu": "--cores", "memory": "--memory"}.get(what, "")
        return _REASONS[kind].format(node=node, what=what or "unknown", option=option)


def _properties(task: Task, placement: Placement, group: str) -> list[str]:
    """The unit, in the words of systemd.service(5), systemd.exec(5) and systemd.resource-control(5)."""
    spec = task.spec
    words = printable(shlex.join(spec.command))[:200]
    properties = {
        "KillMode": "control-group",
        "TimeoutStopSec": f"{max(1, round(spec.stop_grace))}s",
        "SyslogIdentifier": task.container_name,
        "SyslogLevel": "err",
        "SyslogLevelPrefix": "no",
        # Not 0, which systemd takes for unset: the journal would drop lines of a task that prints many.
        "LogRateLimitIntervalSec": "1s",
        "LogRateLimitBurst": "100000000",
        "WorkingDirectory": spec.workdir or "-~",
    }
    if spec.cores is not None:
        properties["CPUQuota"] = f"{max(1.0, spec.cores * 100):.2f}%"
    if spec.memory is not None:
        properties["MemoryMax"] = str(spec.memory)
        properties["MemorySwapMax"] = "0"
    if placement.cpus:
        properties["CPUAffinity"] = properties["AllowedCPUs"] = placement.cpus
        properties["NUMAPolicy"], properties["NUMAMask"] = "bind", str(placement.numa)
        properties["AllowedMemoryNodes"] = str(placement.numa)
    if group:
        properties["Group"] = group
    return [
        f"--description=agentless task {task.id} of {task.owner}: {words}",
        "--service-type=exec",
        "--remain-after-exit",
        *(f"--property={name}={value}" for name, value in properties.items()),
    ]


def _claim(task: Task, placement: Placement) -> str:
    """The process argument that claims the devices, with the fields in the order of `claims.sh.j2`."""
    name = task.container_name
    fields = (
        f"{name}.service",
        name,
        "Up",
        ",".join(placement.claimed),
        *terms_of(task.spec.needs),
        task.id,
        task.owner,
    )
    return "agentless-claim=" + "|".join(_ODD.sub("_", field) for field in fields)


def _name(container: str) -> str:
    return container.removesuffix(".service")


def _unit(fields: Mapping[str, str], clock: float) -> Container | None:
    name = fields.get("Id", "")
    if not _UNIT.fullmatch(name) or fields.get("LoadState") != "loaded" or fields.get("ActiveState") == "inactive":
        return None
    state: ContainerState = "running"
    if fields.get("SubState") in ("exited", "failed"):
        state = "exited"
    elif fields.get("FreezerState", "").startswith(("frozen", "freezing")) or fields.get("State") == "T":
        state = "paused"
    over = state == "exited"
    started = _seconds(fields.get("ExecMainStartTimestamp", ""))
    return Container(
        id=name,
        name=_name(name),
        state=state,
        labels=_labels(fields.get("Environment", "")),
        exit_code=_exit_code(fields) if over else None,
        oom_killed=fields.get("Result") == "oom-kill",
        created_at=started,
        started_at=started,
        finished_at=_seconds(fields.get("ExecMainExitTimestamp", "")) if over else None,
        clock=clock,
    )


def _labels(environment: str) -> dict[str, str]:
    match = _PACKED.search(environment)
    return launch_script.unpacked(match[1]) if match else {}


def _exit_code(fields: Mapping[str, str]) -> int | None:
    """1 is that it exited, 2 that a signal killed it, 3 that it left a core as well (CLD_* in sigaction(2))."""
    code, status = fields.get("ExecMainCode", ""), fields.get("ExecMainStatus", "")
    if not re.fullmatch(r"[0-9]{1,3}", status) or code not in ("1", "2", "3"):
        return None
    found = int(status) if code == "1" else 128 + int(status)
    return found if found <= 255 else None


def _seconds(text: str) -> float | None:
    match = _TIME.fullmatch(text)
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC).timestamp() if match else None
    except ValueError:
        return None
