"""The container engine of a simulated node: its containers, their claims on GPUs, and the stream of events.

What it refuses, it refuses in the words and with the exit codes of Docker 20.10.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from agentless.demo.clock import NodeClock
from agentless.demo.engine.container import Config, SimulatedContainer
from agentless.demo.gpus import Gpus
from agentless.demo.life.work import Job, job_of
from agentless.demo.processes.processes import Child, Children
from agentless.demo.processes.terminal import PseudoTerminal

VERSION = "20.10.0-simulated"
DEFAULT_IMAGE = "simulated/python:3.12"
IMAGES = frozenset({DEFAULT_IMAGE, "python:3.12-slim", "busybox:latest"})
"""The images that every simulated node has. All look the same inside: like this machine."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_FOUND = "executable file not found in $PATH"
_NOT_STARTED = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process"
)
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")


class Actor(TypedDict):
    """The container of an event, with its labels among the attributes."""

    ID: str
    Attributes: dict[str, str]


class EngineEvent(TypedDict):
    """An event of a container, as in `docker events`."""

    ID: str
    Type: str
    Action: str
    Actor: Actor
    TimeNano: int


class Complaint(Exception):
    """An error of the engine: its message and the exit code of the command."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class SimulatedEngine:
    """The containers of the node in `folder`. `bin_folder` holds the programs that GPUs bring into a container.

    `cgroups` is the driver of its control groups, `none` if it has none.
    `refusal` is what it says instead of starting one that wants GPUs, and `refused` how often it has said so.
    """

    def __init__(self, folder: Path, bin_folder: Path, gpus: Gpus, children: Children) -> None:
        self.containers: dict[str, SimulatedContainer] = {}
        self.recent: deque[EngineEvent] = deque(maxlen=256)  # as many as Docker remembers
        self.clock = NodeClock()
        self.id = secrets.token_hex(16)
        self.root = folder
        self._folder, self._bin, self._gpus, self._children = folder / "containers", bin_folder, gpus, children
        self.cgroups = "systemd"
        self.refusal: str | None = None
        self.refused = 0
        self._listeners: set[asyncio.Queue[EngineEvent]] = set()

    @contextmanager
    def events(self) -> Iterator[asyncio.Queue[EngineEvent]]:
        """The events from now on, until the end of the `with`."""
        queue: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def find(self, reference: str) -> SimulatedContainer | None:
        """The container of this name, or whose id begins so."""
        if named := self._named(reference.removeprefix("/")):
            return named
        found = [container for key, container in self.containers.items() if reference and key.startswith(reference)]
        return found[0] if len(found) == 1 else None

    def create(self, config: Config) -> SimulatedContainer:
        """A container that does not run yet."""
        if config.image not in IMAGES:
            raise Complaint(f"No such image: {config.image}")
        self._check_name(config.name)
        container = SimulatedContainer(config, self._folder, self.clock)
        self.containers[container.id] = container
        self._tell(container, "create")
        return container

    def start(self, container: SimulatedContainer) -> None:
        """Start its process, also one that has ended. One that cannot be started stays as it is, with the reason."""
        if container.live:
            if container.state == "paused":
                raise Complaint("cannot start a paused container, try unpause instead")
            return
        config = container.config
        if self.refusal and config.gpus:
            self.refused += 1
            raise self._failed(container, self.refusal, 128, 125)
        unknown = [gpu for gpu in config.gpus if not self._gpus.has(gpu)]
        if unknown:
            hook = "error running hook: exit status 1, stdout: , stderr: nvidia-container-cli: device error"
            raise self._failed(container, f"{hook}: {unknown[0]}: unknown device", 128, 125)
        env = self._environment(container)
        program = config.command[0] if config.command else ""
        found = shutil.which(program, path=env["PATH"])
        if not found:
            if "/" in program and os.path.exists(program):
                raise self._failed(container, f'exec: "{program}": permission denied', 126, 126)
            why = f"stat {program}: no such file or directory" if "/" in program else _NOT_FOUND
            raise self._failed(container, f'exec: "{program}": {why}', 127, 127)
        if config.gpus:
            self._gpus.write_part(config.gpus, container.folder)
        container.start(self._children, env, self._ended)
        self._gpus.busy(self._held())
        self._tell(container, "start")

    def execute(
        self, reference: str, *argv: str, terminal: PseudoTerminal | None = None
    ) -> tuple[Child, asyncio.Future[int]]:
        """Start another program in a container, and its exit code to be."""
        container = self.find(reference)
        if not container:
            raise Complaint(f"Error: No such container: {reference}")
        if container.state == "paused":
            name = container.config.name
            raise Complaint(
                f"Error response from daemon: SimulatedContainer {name} is paused, unpause the container before exec"
            )
        if not container.live:
            raise Complaint(f"Error response from daemon: SimulatedContainer {container.id} is not running")
        env = self._environment(container)
        if not shutil.which(argv[0], path=env["PATH"]):
            why = f'unable to start container process: exec: "{argv[0]}": {_NOT_FOUND}: unknown'
            raise Complaint(f"OCI runtime exec failed: exec failed: {why}", 126)
        return container.execute(self._children, env, argv, terminal)

    def kill(self, container: SimulatedContainer, number: signal.Signals) -> None:
        """Send a signal. A paused container is resumed by it, as Docker does."""
        if not container.live:
            raise Complaint(f"SimulatedContainer {container.id} is not running")
        container.signal(number)
        self._tell(container, "kill", signal=str(int(number)))
        if container.state == "paused":
            self.unpause(container)

    def pause(self, container: SimulatedContainer) -> None:
        """Pause a container."""
        if container.state == "paused":
            raise Complaint(f"SimulatedContainer {container.id} is already paused")
        if not container.live:
            raise Complaint(f"SimulatedContainer {container.id} is not running")
        container.freeze()
        self._tell(container, "pause")

    def unpause(self, container: SimulatedContainer) -> None:
        """Resume a container."""
        if container.state != "paused":
            raise Complaint(f"SimulatedContainer {container.id} is not paused")
        container.thaw()
        self._tell(container, "unpause")

    async def stop(self, container: SimulatedContainer, grace: float) -> None:
        """End it with TERM, and with KILL if it goes on for `grace` seconds; one that has ended is left alone."""
        if container.live:
            await self._end(container, signal.SIGTERM, grace)
            if container.live:
                await self._end(container, signal.SIGKILL)
            self._tell(container, "stop")

    async def restart(self, container: SimulatedContainer, grace: float) -> None:
        """Stop and start it: another run of the same container."""
        await self.stop(container, grace)
        self.start(container)
        self._tell(container, "restart")

    def rename(self, container: SimulatedContainer, name: str) -> None:
        """Give it another name; its id stays."""
        self._check_name(name)
        old = container.config.name
        container.config = replace(container.config, name=name)
        self._tell(container, "rename", oldName=f"/{old}")

    def oom(self, container: SimulatedContainer) -> None:
        """End it as the kernel does when it has used up its memory."""
        container.oom_killed = True
        container.signal(signal.SIGKILL)
        self._tell(container, "oom")

    def crash(self, exit_code: int) -> None:
        """End all containers without events, as if the machine went down."""
        for container in self.containers.values():
            if container.live:
                container.crash(exit_code)
        self._gpus.busy(self._held())

    async def remove(self, container: SimulatedContainer, force: bool) -> None:
        """Remove it with its files and its log, when it has ended; `force` ends it."""
        if container.live and not force:
            first = "Unpause and then stop" if container.state == "paused" else "Stop"
            raise Complaint(
                f"You cannot remove a {container.state} container {container.id}. "
                f"{first} the container before attempting removal or force remove"
            )
        if container.live:
            await self._end(container, signal.SIGKILL)
        if self.containers.pop(container.id, None):
            shutil.rmtree(container.folder, ignore_errors=True)
            self._tell(container, "destroy")

    async def _end(self, container: SimulatedContainer, number: signal.Signals, within: float | None = None) -> None:
        """Send a signal and wait for the end, so many seconds at most."""
        with self.events() as events, suppress(TimeoutError):
            self.kill(container, number)
            async with asyncio.timeout(within):
                while container.live:
                    await events.get()

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise Complaint(f"Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed")
        if other := self._named(name):
            raise Complaint(
                f'Conflict. The container name "/{name}" is already in use by container "{other.id}". '
                "You have to remove (or rename) that container to be able to reuse that name"
            )

    def _named(self, name: str) -> SimulatedContainer | None:
        return next((c for c in self.containers.values() if c.config.name == name), None)

    def _failed(self, container: SimulatedContainer, why: str, exit_code: int, code: int) -> Complaint:
        container.error, container.exit_code = f"{_NOT_STARTED}: {why}: unknown", exit_code
        return Complaint(container.error, code)

    def _environment(self, container: SimulatedContainer) -> Mapping[str, str]:
        """What Docker sets, then what was asked for. The folder is also the mark that `guard.py` looks for."""
        config = container.config
        path = _PATH
        if "python" in config.image:
            path = f"{self._python()}:{path}"
        gpus = {}
        if config.gpus:
            path = f"{self._bin}:{path}"
            gpus = {"NVIDIA_VISIBLE_DEVICES": ",".join(config.gpus)}
        home = {"PATH": path, "HOSTNAME": container.id[:12], "HOME": str(container.folder / "files")}
        return {**home, **gpus, **config.env, "AGENTLESS_STANDIN_DIR": str(container.folder)}

    def _python(self) -> Path:
        """A folder with this interpreter, but without what is installed next to it."""
        folder = self._bin.parent / "python"
        if not folder.exists():
            folder.mkdir()
            for name in ("python", "python3"):
                folder.joinpath(name).symlink_to(os.path.realpath(sys.executable))
        return folder

    def _held(self) -> dict[str, Job]:
        """The GPUs of containers that live, each with the job on it."""
        live = [container for container in self.containers.values() if container.live]
        return {gpu: job_of(each.config.command, each.id) for each in live for gpu in each.config.gpus}

    def _ended(self, container: SimulatedContainer) -> None:
        self._gpus.busy(self._held())
        self._tell(container, "die", exitCode=str(container.exit_code))

    def _tell(self, container: SimulatedContainer, action: str, **attributes: str) -> None:
        config = container.config
        event: EngineEvent = {
            "ID": container.id,
            "Type": "container",
            "Action": action,
            "Actor": {
                "ID": container.id,
                "Attributes": {**config.labels, "image": config.image, "name": config.name, **attributes},
            },
            "TimeNano": self.clock.now(),
        }
        self.recent.append(event)
        for queue in self._listeners:
            queue.put_nowait(event)
