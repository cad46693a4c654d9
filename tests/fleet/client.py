"""A client of a simulated node, for tests: what a controller is to a node, without the controller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from agentless.demo.fleet import Fleet
from agentless.demo.node import SimulatedNode
from agentless.model.command import Command, Result
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.containers.signature import Signer
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_id import new_task_id
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.pauses import pauses

PATIENCE = 60
"""Seconds after which something that should have happened counts as not happening."""

IMAGE = "simulated/python:3.12"
SIGNER = Signer("c1", b"c1")


@dataclass
class Client:
    """What a controller is to a node: a connection, and a runtime that renders and parses."""

    connection: asyncssh.SSHClientConnection
    node: SimulatedNode

    def __post_init__(self) -> None:
        self.docker = docker_engine(NodeConfig(self.node.name, "127.0.0.1"), Renderer([template_dir()]), SIGNER)

    async def run(self, command: Command | str) -> Result:
        script = command if isinstance(command, str) else command.text()
        async with asyncio.timeout(PATIENCE):
            done = await self.connection.run("exec sh", input=script.encode(), encoding=None)
        code = done.returncode
        return Result(code if code >= 0 else 128 - code, done.stdout, done.stderr)

    def task(self, *command: str, gpus: tuple[int, ...] = (), **spec: object) -> tuple[Task, Placement]:
        needs = Needs(gpus=len(gpus), nodes=(self.node.name,), indices=gpus)
        task = Task(
            id=new_task_id(time.time()),
            spec=TaskSpec(command, **{"image": IMAGE, **spec}, needs=needs),
            batch="b1",
            owner="ann@laptop",
            created_at=1_700_000_000.5,
        )
        return task, Placement(self.node.name, gpus, tuple(self.node.gpus.uuids[gpu] for gpu in gpus))

    async def launch(self, *command: str, **spec: object) -> str:
        task, placement = self.task(*command, **spec)
        return self.docker.parse_launch(task, await self.run(self.docker.launches([Launch(task, placement)])))

    async def container(self, cid: str):
        listed = self.docker.parse_containers(await self.run(self.docker.inspect([cid])), 0.0)
        return next(container for container in listed if container.id == cid)

    @contextlib.asynccontextmanager
    async def lines(self, command: Command):
        """The output of a command that goes on, line by line; None when it ends."""
        async with self.connection.create_process("exec sh", encoding="utf-8") as process:
            process.stdin.write(command.text())
            process.stdin.write_eof()

            async def line() -> str | None:
                async with asyncio.timeout(PATIENCE):
                    return (await process.stdout.readline()).rstrip("\n") or None

            yield line
            process.close()

    @contextlib.asynccontextmanager
    async def events(self):
        """Listens, and gives a function that waits for the next event: (container, action), None at the end."""
        listening = "docker events --filter label=agentless.task --format '{{.ID}} {{.Action}}'"
        before = len(self.node.engine._listeners)
        async with self.lines(Command(listening)) as line:
            await until(lambda: len(self.node.engine._listeners) > before)

            async def event() -> tuple[str, str] | None:
                event = await line()
                if event is None:
                    return None
                cid, action = event.split()
                return cid, action

            yield event

    async def ended(self, cid: str):
        """The container after its end."""
        async with asyncio.timeout(PATIENCE):
            with self.node.engine.events() as events:
                while self.node.engine.containers[cid].live:
                    await events.get()
        return await self.container(cid)

    async def log(self, cid: str, **query: object) -> Result:
        return await self.run(self.docker.logs(cid, LogQuery(**query)))


@contextlib.asynccontextmanager
async def connect(fleet: Fleet, name: str) -> AsyncIterator[Client]:
    async with asyncssh.connect(
        "127.0.0.1",
        fleet.nodes[name].port,
        username="demo",
        client_keys=[str(fleet.identity)],
        known_hosts=str(fleet.known_hosts),
        config=None,
    ) as connection:
        yield Client(connection, fleet.nodes[name])


async def gone(pid: int) -> bool:
    """Wait for the end of a process, whoever its parent is."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await over.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def until(true: Callable[[], object]) -> None:
    """Wait until something is so that nobody tells of. When it does not come, what everything waits for is printed."""
    pause = pauses()
    try:
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110 - what is waited for is in another process
                await asyncio.sleep(next(pause))
    except TimeoutError:
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stdout)
        raise


def proc(pid: object, name: str) -> str:
    """A file of /proc/PID."""
    return Path("/proc", str(pid), name).read_text()
