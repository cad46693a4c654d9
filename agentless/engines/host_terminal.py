"""Interactive programs beside those of a task, where no container has to be entered. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs
from agentless.model.command import Command
from agentless.model.terminal import ANY_SHELL, Attachment, InputKind
from agentless.ports import Reading


class HostTerminal:
    """What is alike for services and jobs. `of` renders a template for one, `text` one for a shell.

    `template` runs a program, with the script's input and terminal; it ends with those.
    """

    template: str

    def __init__(self, of: Callable[..., Command], text: Callable[..., str]) -> None:
        self._of = of
        self._text = text

    def shell(self, container: str, command: Sequence[str], mark: str, attached: Attachment) -> Command:
        """Run a program beside those of the task."""
        return self._of(
            container,
            self.template,
            command=command or ANY_SHELL,
            mark=mark,
            input=attached.input.value,
            variables=[f"{name}={value}" for name, value in attached.variables.items()],
        )

    def inside(self, template: str) -> Sequence[str]:
        """The command that runs this template as a script of the node's `sh`."""
        return "sh", "-c", self._text(template)

    def reading(self, kind: InputKind) -> Reading:
        """All that comes after the mark is the program's own."""
        del kind
        return AsItIs()
