"""From the name of a host to a container: `train` is a task, and `torch.env` is the build container of an env.

The name of a cluster is its login node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from agentless.controller.envs.builds import Builds
from agentless.controller.nodes.login import Login
from agentless.controller.nodes.registry import Nodes
from agentless.controller.tasks.exec import Terminals
from agentless.errors import NotFound
from agentless.model.caller import Caller

ENV = ".env"


class Logins:
    """Logs people in to containers."""

    def __init__(self, terminals: Terminals, builds: Builds, nodes: Nodes) -> None:
        self._terminals, self._builds, self._nodes = terminals, builds, nodes

    @asynccontextmanager
    async def log_in(self, host: str, by: Caller) -> AsyncIterator[Login]:
        """Find the container; raises what a shell in it would raise. A task of the same name comes first."""
        async with AsyncExitStack() as stack:
            try:
                login = await stack.enter_async_context(self._terminals.log_in(host, by))
            except NotFound:
                if host in self._nodes.clusters:
                    yield self._terminals.on_login_node(host)
                    return
                login = await stack.enter_async_context(await self._other(host, by))
            yield login

    async def _other(self, host: str, by: Caller) -> AbstractAsyncContextManager[Login]:
        """The container of a host that is no task, as far as this controller knows yet."""
        await self._nodes.heard()  # only a node knows the task of another controller
        if host.endswith(ENV) and not self._terminals.is_task(host):
            return self._builds.log_in(host.removesuffix(ENV), by)
        return self._terminals.log_in(host, by)
