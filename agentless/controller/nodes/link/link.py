"""What links to nodes and to clusters have in common: a session that is kept, and what was heard over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.connection import NodeConnection
from agentless.controller.nodes.link.shared_streams import Reader, SharedStreams
from agentless.errors import AgentlessError, TooMuch
from agentless.model.command import Command, Result
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.sighting import Sighting
from agentless.ports import Clock
from agentless.remote.session import Session
from agentless.remote.streams import Stream


class LinkListener(Protocol):
    """Hears of everything that a node says."""

    def node_changed(self, link: Any) -> None:
        """Something new is known of the node, were it only fresh numbers."""

    def sighted(self, link: Any, sighting: Sighting) -> None:
        """The node has named containers."""


class Link:
    """A session to one machine. The properties read the cache: they never wait for the machine."""

    def __init__(self, node: NodeConfig, session: Session, clock: Clock, listener: LinkListener) -> None:
        self.node = node
        self.session = session
        changed, sighted = partial(listener.node_changed, self), partial(listener.sighted, self)
        self.cache = NodeCache(node.name, clock, changed, sighted)
        self.connection = NodeConnection(session, self.cache)
        self.answered = self.connection.answered
        self._shared = SharedStreams(self.stream)
        self._keeping: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Begin to connect, and stay connected."""
        keeping = self.connection.keep(self._greet, self._attend)
        self._keeping = asyncio.create_task(keeping, name=f"link {self.node.name}")

    async def close(self) -> None:
        """End the loops and the connection."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self.session.close()

    async def _greet(self) -> None:
        """Look at everything, once connected."""
        raise NotImplementedError

    async def _attend(self) -> None:
        """Keep what is known up to date until that breaks; raises what broke."""
        raise NotImplementedError

    # ------------------------------------------------------------ what can be run there

    async def ready(self, *, within: float = 20.0) -> None:
        """Wait until the node has answered or is known not to; a node in back-off is tried at once."""
        await self.connection.ready(within=within)

    async def run(self, command: Command, heard: Callable[[bytes], None] | None = None) -> Result:
        """Run a short command on the node; raises NoAnswer. `heard` is as in `Session.run`."""
        self.cache.check_online()
        return await self.session.run(command, heard)

    async def collect(self, command: Command) -> Result:
        """Run a command that may take long, and that ends with us; both its streams. Raises TooMuch."""
        said = {1: b"", 2: b""}
        async with self.stream(command) as stream:
            async for fd, data in stream:
                said[fd] += data
                if len(said[1]) + len(said[2]) > command.most:
                    raise TooMuch(f"{self.node.name} sent more than {command.most >> 20} MiB; ignored the rest")
        return Result(stream.exit_code or 0, said[1], said[2])

    def stream(self, command: Command, *, own: bool = False) -> AbstractAsyncContextManager[Stream]:
        """Run a command whose output is wanted as it comes; `own`: it may have a session kept for the controller."""
        return self.session.stream(command, own=own)

    def followed(self, command: Command, tail: int | None) -> AbstractAsyncContextManager[Reader]:
        """Likewise, for all who ask for the same; see `SharedStreams.stream`."""
        return self._shared.stream(command, tail)

    # ------------------------------------------------------------ what is known of it

    @property
    def observation(self) -> Observation:
        """The last that was heard of it."""
        return self.cache.observation

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of ours that it has named last."""
        return self.cache.containers

    @property
    def online(self) -> bool:
        """Whether it answers now."""
        return self.cache.online

    @property
    def silence(self) -> str | None:
        """Why it does not say which containers of ours it has, None when it does."""
        return self.cache.silence

    @property
    def outdated(self) -> str | None:
        """Why what it has said of containers of ours may not be so any more, None if it is."""
        return self.silence

    @property
    def known_until(self) -> float | None:
        """Up to when (Unix seconds) its containers are known, while it does not say; None: it has never said."""
        return self.cache.known_until

    @property
    def failure(self) -> AgentlessError | None:
        """Why it cannot be reached now, None while it can."""
        return self.connection.failure

    @property
    def offline_since(self) -> float | None:
        """From when on (Unix seconds) it has not been reached, None while it is."""
        return self.connection.offline_since
