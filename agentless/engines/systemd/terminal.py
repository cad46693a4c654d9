"""Interactive programs beside those of a task, on the node itself. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs
from agentless.model.command import Command
from agentless.model.terminal import ANY_SHELL, Attachment, InputKind
from agentless.ports import Reading


class SystemdTerminal:
    """The commands for one node. `of` renders a template for a unit, `text` one for a shell."""

    def __init__(self, of: Callable[..., Command], text: Callable[..., str]) -> None:
        self._of = of
        self._text = text

    def shell(self, container: str, command: Sequence[str], mark: str, attached: Attachment) -> Command:
        """Run a program as the unit's user, in its groups, with the script's input and terminal; it ends with those."""
        return self._of(
            container,
            "systemd-shell.sh.j2",
            command=command or ANY_SHELL,
            mark=mark,
            input=attached.input.value,
            variables=[f"{name}={value}" for name, value in attached.variables.items()],
        )

    def hang_up(self, container: str, mark: str, *, whole: bool) -> Command:
        """End the program that `shell` has begun with this mark, if it is still there."""
        return self._of(container, "systemd-hang-up.sh.j2", missing=0, mark=mark, once=True, whole=whole)

    def tell(self, container: str, mark: str, signal: str) -> Command:
        """Send a signal to the program that `shell` has begun with this mark."""
        return self._of(container, "systemd-tell.sh.j2", mark=mark, signal=signal)

    def inside(self, template: str) -> Sequence[str]:
        """The command that runs this template as a script of the node's `sh`."""
        return "sh", "-c", self._text(template)

    def reading(self, kind: InputKind) -> Reading:
        """All that comes after the mark is the program's own."""
        del kind
        return AsItIs()
