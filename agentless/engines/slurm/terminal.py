"""Interactive programs beside a job, on its first node. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentless.engines.client_warnings import AsItIs
from agentless.model.command import Command
from agentless.model.terminal import ANY_SHELL, Attachment, InputKind
from agentless.ports import Reading


class SlurmTerminal:
    """The commands for one cluster. `of` renders a template for a job, `text` one for a shell."""

    def __init__(self, of: Callable[..., Command], text: Callable[..., str]) -> None:
        self._of = of
        self._text = text

    def shell(self, container: str, command: Sequence[str], mark: str, attached: Attachment) -> Command:
        """Run a program as a step of the job; it ends with the script's terminal."""
        return self._of(
            container,
            "slurm-shell.sh.j2",
            command=command or ANY_SHELL,
            mark=mark,
            input=attached.input.value,
            variables=[f"{name}={value}" for name, value in attached.variables.items()],
        )

    def hang_up(self, container: str, mark: str, *, whole: bool) -> Command:
        """Nothing: Slurm ends the step when its `srun` is gone."""
        del container, mark, whole
        return Command("exit 1\n")

    def tell(self, container: str, mark: str, signal: str) -> Command:
        """Nothing: a step of a job hears no signals but by its terminal."""
        del container, mark, signal
        return Command("exit 1\n")

    def inside(self, template: str) -> Sequence[str]:
        """The command that runs this template as a script of the node's `sh`."""
        return "sh", "-c", self._text(template)

    def reading(self, kind: InputKind) -> Reading:
        """All that comes after the mark is the program's own."""
        del kind
        return AsItIs()
