"""Interactive programs beside those of a task, on the node itself. No I/O."""

from __future__ import annotations

from agentless.engines.host_terminal import HostTerminal
from agentless.model.command import Command


class SystemdTerminal(HostTerminal):
    """Programs as the unit's user, in its groups."""

    template = "systemd-shell.sh.j2"

    def hang_up(self, container: str, mark: str, *, whole: bool) -> Command:
        """End the program that `shell` has begun with this mark, if it is still there."""
        return self._of(container, "systemd-hang-up.sh.j2", missing=0, mark=mark, once=True, whole=whole)

    def tell(self, container: str, mark: str, signal: str) -> Command:
        """Send a signal to the program that `shell` has begun with this mark."""
        return self._of(container, "systemd-tell.sh.j2", mark=mark, signal=signal)
