"""Interactive programs in containers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs, WithoutWarnings
from agentless.engines.docker.commands import Commands
from agentless.model.command import Command
from agentless.model.terminal import ANY_SHELL, Attachment, InputKind
from agentless.ports import Reading


class DockerTerminal:
    """The commands for one node. `warnings` returns the lines that the engine's command prints at every call."""

    def __init__(self, commands: Commands, warnings: Callable[[], Sequence[str]]) -> None:
        self._commands = commands
        self._warnings = warnings

    def shell(self, container: str, command: Sequence[str], mark: str, attached: Attachment) -> Command:
        """Run a program in the container with the script's input and terminal; it ends when they break off."""
        return self._commands.script(
            "docker-shell.sh.j2",
            docker=self._commands.quiet,
            container=container,
            command=command or ANY_SHELL,
            mark=mark,
            input=attached.input.value,
            variables=[f"{name}={value}" for name, value in attached.variables.items()],
        )

    def hang_up(self, container: str, mark: str, *, whole: bool) -> Command:
        """End the program that `shell` has begun with this mark, if it is still there."""
        return self._commands.script("docker-hang-up.sh.j2", container=container, mark=mark, once=True, whole=whole)

    def tell(self, container: str, mark: str, signal: str) -> Command:
        """Send a signal to the program that `shell` has begun with this mark."""
        return self._commands.script("docker-tell.sh.j2", container=container, mark=mark, signal=signal)

    def inside(self, template: str) -> Sequence[str]:
        """The command that runs this template as a script of the container's own `sh`."""
        return "sh", "-c", self._commands.text(template)

    def reading(self, kind: InputKind) -> Reading:
        """Reads the program's own output from what `shell` prints."""
        return AsItIs() if kind is InputKind.TERMINAL else WithoutWarnings(AsItIs(), self._warnings())
