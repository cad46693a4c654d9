"""Interactive programs in containers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs, WithoutWarnings
from agentless.engines.dialect import Dialect
from agentless.model.command import Command
from agentless.model.nodes.node import NodeConfig
from agentless.ports import Reading
from agentless.render import Renderer


class DockerTerminal:
    """The commands for one node. `warnings` returns the lines that the engine's command prints at every call."""

    def __init__(
        self, node: NodeConfig, renderer: Renderer, dialect: Dialect, warnings: Callable[[], Sequence[str]]
    ) -> None:
        self._docker = [*node.docker, *dialect.quiet]
        self._renderer = renderer
        self._dialect = dialect
        self._warnings = warnings

    def shell(self, container: str, command: Sequence[str], mark: str, *, terminal: bool) -> Command:
        """Run a program in the container with the script's input and terminal; it ends when they break off."""
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
        """Reads the program's own output from what `shell` prints."""
        return AsItIs() if terminal else WithoutWarnings(AsItIs(), self._warnings())
