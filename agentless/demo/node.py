"""One simulated node: an SSH server, GPUs and a container engine over one folder. Each fault has its cure beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import asyncssh

from agentless.demo.calls import Call, Calls
from agentless.demo.engine.docker import docker, docker_without_engine
from agentless.demo.engine.engine import SimulatedEngine
from agentless.demo.flock import NodeLock
from agentless.demo.gpus import Gpus
from agentless.demo.processes.processes import NULL, Child, Children
from agentless.demo.ssh import Sshd

Moment = Literal["before", "after"]
"""When a connection breaks: before `docker` has done what it was asked for; when it has created the container that it
was to run, and not started it; when it has done all and nobody has been told."""


class SimulatedNode:
    """A node of a `Fleet`, which makes and starts it. `bin_folder` comes first on the PATH of its sessions."""

    def __init__(
        self,
        name: str,
        gpus: Gpus,
        folder: Path,
        bin_folder: Path,
        host_key: asyncssh.SSHKey,
        authorized_keys: str,
        children: Children,
    ) -> None:
        self.name = name
        self.gpus = gpus
        self.env = {
            "PATH": f"{bin_folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "AGENTLESS_STANDIN_DIR": str(folder),
            "AGENTLESS_SIMULATED": "yes",
        }
        self.engine = SimulatedEngine(folder, bin_folder, gpus, children)
        self.host_key = host_key.export_public_key().decode().strip()
        self._sshd = Sshd(host_key, authorized_keys, folder, self.env, children)
        self._folder, self._children = folder, children
        self._engine_runs = True
        self._breaks: dict[str, Moment] = {}
        self._lock = NodeLock()
        self._calls: Calls | None = None
        self._foreign: Child | None = None

    @property
    def port(self) -> int:
        """Of its SSH server on 127.0.0.1."""
        return self._sshd.port

    async def start(self) -> None:
        """Serve."""
        self._calls = Calls(self._folder, self._answer)
        await self._sshd.start()

    def close(self) -> None:
        """Stop serving; the owner of its `Children` ends its processes."""
        self._sshd.stop()
        if self._calls:
            self._calls.close()

    def use_gpu(self, index: int, memory: int = 9216) -> None:
        """Let a process outside any container (a real one, that sleeps) hold `memory` MiB of a GPU until a reboot."""
        argv = ["sleep", "infinity"]
        self._foreign = self._children.start(argv, self.env, self._folder, lambda _: None, streams=NULL)
        self.gpus.use(index, self._foreign.pid, argv[0], memory)

    def cut(self) -> None:
        """Drop all connections and refuse new ones. Containers go on."""
        self._sshd.stop()

    async def restore(self) -> None:
        """Take connections again, on the same port."""
        await self._sshd.start()

    def lose_answer(self, verb: str, moment: Moment) -> None:
        """Break all connections at the next `docker VERB`. Containers go on, and new connections are taken."""
        self._breaks[verb] = moment

    def keep_answers(self) -> None:
        """Undo `lose_answer`."""
        self._breaks.clear()

    def set_clock(self, ahead: float) -> None:
        """Let the clock be so many seconds ahead of this machine's, from now on; 0 sets it right."""
        self.engine.clock.ahead = ahead

    def hang_gpu(self) -> None:
        """From now on `nvidia-smi` does not answer."""
        self.gpus.hang()

    def heal_gpu(self) -> None:
        """`nvidia-smi` answers again."""
        self.gpus.heal()

    def stop_engine(self, *, live_restore: bool = True) -> None:
        """`docker` says that it cannot connect, and what it was doing ends.

        Containers go on if Docker's live-restore is set; otherwise they end with it, with 137. Past events are lost.
        """
        self._engine_runs = False
        self.engine.recent.clear()
        if self._calls:
            self._calls.cancel()
        if not live_restore:
            self.engine.crash(137)

    def start_engine(self) -> None:
        """`docker` works again; containers that ended meanwhile have ended."""
        self._engine_runs = True

    async def reboot(self) -> None:
        """End everything on it at once and serve again: connections, containers (with 255), other users' processes."""
        self.cut()
        self.stop_engine()
        self.engine.crash(255)
        if self._foreign:
            self._foreign.end()
        self.start_engine()
        await self.restore()

    async def _answer(self, call: Call) -> int:
        if call.program == "flock":
            return await self._lock.flock(call)
        if not self._engine_runs:
            return await docker_without_engine(call)
        moment = self._breaks.pop(call.words[0], None) if call.words else None
        if moment == "before":
            await self._break()
        code = await docker(self.engine, call)
        if moment:
            await self._break()
        return code

    async def _break(self) -> None:
        """Break all connections; does not come back, since the program that waits dies with its own."""
        self._sshd.drop()
        await asyncio.Event().wait()
