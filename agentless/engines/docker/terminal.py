"""Programs in containers that somebody types to. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs, WithoutWarnings
from agentless.engines.docker.dialect import Dialect
from agentless.model.command import Command
from agentless.model.nodes.node import NodeConfig
from agentless.ports import Reading
from agentless.render import Renderer


class DockerTerminal:
    """The commands for one node; `warnings` gives what the engine's command has last warned of at every call."""

    def __init__(
        self, node: NodeConfig, renderer: Renderer, dialect: Dialect, warnings: Callable[[], Sequence[str]]
    ) -> None:
        self._docker = [*node.docker, *dialect.quiet]
        self._renderer = renderer
        self._dialect = dialect
        self._warnings = warnings

    def shell(self, container: str, command: Sequence[str], mark: str, *, terminal: bool) -> Command:
        """A program in the container, with the input and the terminal of the script; when those break off, it ends."""
        command = command or ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
        script = self._renderer.script(
            self._dialect.template("docker-shell.sh.j2"),
            docker=self._docker,
            container=container,
            command=command,
            mark=mark,
            terminal=terminal,
        )
        return Command(script + "\n")

    def reading(self, *, terminal: bool) -> Reading:
        """What makes the program's own output of what that prints."""
        return AsItIs() if terminal else WithoutWarnings(AsItIs(), self._warnings())
