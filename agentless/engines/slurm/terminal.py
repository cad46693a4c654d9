"""Interactive programs beside a job, on its first node. No I/O."""

from __future__ import annotations

from agentless.engines.host_terminal import HostTerminal
from agentless.model.command import Command


class SlurmTerminal(HostTerminal):
    """Programs as steps of the job."""

    template = "slurm-shell.sh.j2"

    def hang_up(self, container: str, mark: str, *, whole: bool) -> Command:
        """Nothing: Slurm ends the step when its `srun` is gone."""
        del container, mark, whole
        return Command("exit 1\n")

    def tell(self, container: str, mark: str, signal: str) -> Command:
        """Nothing: a step of a job hears no signals but by its terminal."""
        del container, mark, signal
        return Command("exit 1\n")
