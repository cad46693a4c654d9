"""Many simulated nodes in one process, with the keys, `known_hosts` and inventory to reach them."""

from __future__ import annotations

import asyncio
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import asyncssh

from agentless.demo.engine.engine import DEFAULT_IMAGE
from agentless.demo.gpus import Gpus, Model
from agentless.demo.life import past
from agentless.demo.life.host import Host, size_for
from agentless.demo.life.loads import Loads
from agentless.demo.node import SimulatedNode
from agentless.demo.processes import guard
from agentless.demo.processes.processes import Children

USER = "demo"
"""The login name in the inventory. Any other is let in with the key, too; all are the user of this process."""

_TEMPLATES = Path(__file__).parent / "config" / "templates"
_PROGRAMS = Path(__file__).parent / "bin"
_MOVES = 1.0
"""Seconds between two moves of a cluster that lives."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node to simulate: its name, its GPUs, and whether somebody outside agentless uses the last one of them.

    `slices` are profiles: the first GPU is in MIG mode then.
    """

    name: str
    gpus: int = 1
    model: Model = "A100"
    foreign: bool = False
    slices: tuple[str, ...] = ()


class Fleet:
    """The nodes of `plans` for the time of an `async with`, in the folder `root`, which is made and stays.

    `root` must be empty, and is the caller's to remove. When this process is killed, a guard process ends what it has
    started. Raises the open-file limit of this process as far as it may.

    With `samples` the cluster lives: loads move, and the hour before is in that file. Machines have a size that suits
    their GPUs, if the controller's config folder has what is in `templates` then.
    """

    def __init__(self, root: Path, plans: Sequence[NodePlan], samples: Path | None = None) -> None:
        self.root = root.resolve()
        self.inventory = self.root / "inventory.yaml"
        self.known_hosts = self.root / "known_hosts"
        self.identity = self.root / "id_ed25519"
        self.nodes: dict[str, SimulatedNode] = {}
        self._plans = plans
        self._samples = samples
        self._hosts: dict[str, Host] = {}
        self._moving: asyncio.Task[None] | None = None
        self._children = Children()
        self._guard: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _allow_many_files()
        programs = self._copy_programs()
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.identity.touch(mode=0o600)
        key.write_private_key(self.identity)
        authorized = key.export_public_key().decode()
        # In a session of its own, so that a Ctrl-C does not reach it.
        self._guard = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", guard.__file__, str(self.root), stdin=-1, start_new_session=True
        )
        try:
            for plan in self._plans:
                await self._add(plan, programs, authorized)
            if self._samples:
                self._live(self._samples)
            for plan in self._plans:
                if plan.foreign:
                    self.nodes[plan.name].use_gpu(plan.gpus - 1)
            self._write_files()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _add(self, plan: NodePlan, programs: Path, authorized: str) -> None:
        folder = self.root / "nodes" / plan.name
        folder.mkdir(parents=True)
        gpus = Gpus(plan.gpus, plan.model, folder, Loads(time.time) if self._samples else None)
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        node = SimulatedNode(plan.name, gpus, folder, programs, host_key, authorized, self._children)
        self.nodes[plan.name] = node
        await node.start()
        if plan.slices:
            gpus.divide(0, plan.slices)
        if self._samples:
            self._hosts[plan.name] = Host(size_for(plan.gpus), folder, time.time)

    def _live(self, samples: Path) -> None:
        """Begin with a past, and move from now on."""
        shutil.copytree(_TEMPLATES, self.root / "templates")
        nodes = [(name, node.gpus) for name, node in self.nodes.items()]
        now = time.time()
        past.begin(nodes, now)
        past.record(nodes, now, samples)
        self._moving = asyncio.create_task(self._move())

    async def _move(self) -> None:
        while True:
            for name, node in self.nodes.items():
                self._hosts[name].move(node.gpus.move())
            await asyncio.sleep(_MOVES)

    async def _close(self) -> None:
        if self._moving:
            self._moving.cancel()
        for node in self.nodes.values():
            node.close()
        await self._children.close()
        if self._guard and self._guard.stdin:
            self._guard.stdin.close()
            await self._guard.wait()

    def _copy_programs(self) -> Path:
        folder = self.root / "bin"
        shutil.copytree(_PROGRAMS, folder)
        for program in folder.iterdir():
            program.chmod(0o755)
        return folder

    def _write_files(self) -> None:
        nodes = self.nodes.values()
        self.known_hosts.write_text("".join(f"[127.0.0.1]:{node.port} {node.host_key}\n" for node in nodes))
        lines = [
            "# Simulated nodes; see agentless/demo/__init__.py. They disappear when the simulation ends.",
            "version: 1",
            # Engines of this machine are on none of them, and its slurmd manages none.
            f"defaults: {{user: {USER}, identity_file: {self.identity}, image: '{DEFAULT_IMAGE}',",
            "           accept_engines: [all]}",
            "nodes:",
            *(f"  {node.name}: {{host: 127.0.0.1, port: {node.port}, allow: slurm}}" for node in nodes),
        ]
        self.inventory.write_text("\n".join(lines) + "\n")


def demo_plans(gpus: Sequence[int | Literal["mig"]]) -> list[NodePlan]:
    """node1, node2 … with so many GPUs, the larger the node the larger the GPU.

    Somebody else is on the last GPU of the second one, or of the only one. `mig` is a node with one GPU in slices.
    """
    plans = []
    for number, count in enumerate(gpus, 1):
        if count == "mig":
            plans.append(NodePlan(f"node{number}", slices=("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")))
            continue
        model: Model = "A100" if count >= 8 else "RTX 4090" if count > 1 else "RTX 3090"
        plans.append(NodePlan(f"node{number}", count, model, foreign=number == min(2, len(gpus)) and count > 0))
    return plans


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
