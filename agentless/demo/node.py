"""One simulated node: an SSH server, GPUs and a container engine over one folder. Each fault has its cure beside it."""

from __future__ import annotations

from pathlib import Path

import asyncssh

from agentless.demo.calls import Call, Calls
from agentless.demo.docker import docker, docker_without_engine
from agentless.demo.engine import Engine
from agentless.demo.flock import NodeLock
from agentless.demo.gpus import Gpus
from agentless.demo.processes import NULL, Child, Children
from agentless.demo.ssh import Sshd


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
        }
        self.engine = Engine(folder, bin_folder, gpus, children)
        self.host_key = host_key.export_public_key().decode().strip()
        self._sshd = Sshd(host_key, authorized_keys, folder, self.env, children)
        self._folder, self._children = folder, children
        self._engine_runs = True
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
        """Serve no more; its processes are ended by whoever made its `Children`."""
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

    def hang_gpu(self) -> None:
        """From now on `nvidia-smi` does not answer."""
        self.gpus.hang()

    def heal_gpu(self) -> None:
        """`nvidia-smi` answers again."""
        self.gpus.heal()

    def stop_engine(self) -> None:
        """`docker` says that it cannot connect, and what it was doing ends. Containers go on: Docker's live-restore."""
        self._engine_runs = False
        if self._calls:
            self._calls.cancel()

    def start_engine(self) -> None:
        """`docker` works again; containers that ended meanwhile have ended."""
        self._engine_runs = True

    async def reboot(self) -> None:
        """End everything on it at once and serve again: connections, containers (with 255), other users' processes."""
        self.cut()
        if self._calls:
            self._calls.cancel()
        for container in self.engine.containers.values():
            if container.live:
                self.engine.crash(container)
        if self._foreign:
            self._foreign.end()
        await self.restore()

    async def _answer(self, call: Call) -> int:
        if call.program == "flock":
            return await self._lock.flock(call)
        return await (docker(self.engine, call) if self._engine_runs else docker_without_engine(call))
