"""From the name of a host to a container: `train` is a task, and `torch.env` is the build container of an env."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from agentless.controller.envs.builds import Builds
from agentless.controller.nodes.login import Login
from agentless.controller.tasks.exec import Terminals
from agentless.model.caller import Caller

ENV = ".env"


class Logins:
    """Logs people in to containers."""

    def __init__(self, terminals: Terminals, builds: Builds) -> None:
        self._terminals, self._builds = terminals, builds

    def log_in(self, host: str, by: Caller) -> AbstractAsyncContextManager[Login]:
        """Find the container; raises what a shell in it would raise. A task that is called like an env wins."""
        if host.endswith(ENV) and not self._terminals.is_task(host):
            return self._builds.log_in(host.removesuffix(ENV), by)
        return self._terminals.log_in(host, by)
