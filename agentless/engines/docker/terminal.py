"""Interactive programs in containers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs, WithoutWarnings
from agentless.engines.docker.commands import Commands
from agentless.model.command import Command
from agentless.ports import Reading


class DockerTerminal:
    """The commands for one node. `warnings` returns the lines that the engine's command prints at every call."""

    def __init__(self, commands: Commands, warnings: Callable[[], Sequence[str]]) -> None:
        self._commands = commands
        self._warnings = warnings

    def shell(self, container: str, command: Sequence[str], mark: str, *, terminal: bool) -> Command:
        """Run a program in the container with the script's input and terminal; it ends when they break off."""
        return self._commands.script(
            "docker-shell.sh.j2",
            docker=self._commands.quiet,
            container=container,
            command=command or ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"),
            mark=mark,
            terminal=terminal,
        )

    def reading(self, *, terminal: bool) -> Reading:
        """Reads the program's own output from what `shell` prints."""
        return AsItIs() if terminal else WithoutWarnings(AsItIs(), self._warnings())
