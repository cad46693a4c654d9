"""From the name of a host to a container: `train` is a task, and `torch.env` is the build container of an env."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentless.controller.envs.builds import Builds
from agentless.controller.nodes.login import Login
from agentless.controller.nodes.registry import Nodes
from agentless.controller.tasks.exec import Terminals
from agentless.model.caller import Caller

ENV = ".env"


class Logins:
    """Logs people in to containers."""

    def __init__(self, terminals: Terminals, builds: Builds, nodes: Nodes) -> None:
        self._terminals, self._builds, self._nodes = terminals, builds, nodes

    @asynccontextmanager
    async def log_in(self, host: str, by: Caller) -> AsyncIterator[Login]:
        """Find the container; raises what a shell in it would raise. A task that is called like an env wins."""
        if not self._terminals.is_task(host):
            await self._nodes.heard()  # it may be of another controller: then only a node knows it
        is_env = host.endswith(ENV) and not self._terminals.is_task(host)
        found = self._builds.log_in(host.removesuffix(ENV), by) if is_env else self._terminals.log_in(host, by)
        async with found as login:
            yield login
