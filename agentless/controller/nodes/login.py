"""Any number of programs in one place, for somebody who has logged in to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from agentless.controller.nodes.program import Place, Program, started
from agentless.model.terminal import Attachment, InputKind
from agentless.rules.tasks.entry import Gate


class Login:
    """Starts programs in a container, which `container` names, or beside those of a task without one.

    `tell` publishes an event about the login: its name, and what happened. `watchers` show a line on its terminals.
    `gate` is what has to be proved before, None if the kernel's word is enough.
    """

    def __init__(self, place: Place, tell: Callable[[str, str], None], gate: Gate | None = None) -> None:
        self.container = place.container
        self.tell = tell
        self.gate = gate
        self.watchers: set[Callable[[str], None]] = set()
        self._place = place

    def show(self, text: str) -> None:
        """Show a line to the user, on each of the terminals."""
        for watcher in self.watchers:
            watcher(text)

    def shell(self, line: str | None, attached: Attachment) -> AbstractAsyncContextManager[Program]:
        """Run a command line, or a shell without one."""
        words = () if line is None else (*self._inside("container-command.sh.j2"), line)
        return started(self._place, words, attached)

    def carrier(self) -> AbstractAsyncContextManager[Program]:
        """Run a program that carries connections with ports in the container, or is a `relay`; see its template."""
        return self._script("container-carrier.sh.j2")

    def relay(self) -> AbstractAsyncContextManager[Program]:
        """Run a program that connects its input and output with a port in the container; see its template."""
        return self._script("container-relay.sh.j2")

    def listener(self) -> AbstractAsyncContextManager[Program]:
        """Run a program that listens on a port in the container; see its template."""
        return self._script("container-listen.sh.j2")

    def files(self) -> AbstractAsyncContextManager[Program]:
        """Run the container's sftp-server, or a script that does the same in lines; see its template."""
        return self._script("container-files.sh.j2")

    def writer(self) -> AbstractAsyncContextManager[Program]:
        """Run a program that writes its input to a file; see its template."""
        return self._script("container-write.sh.j2")

    def _script(self, template: str) -> AbstractAsyncContextManager[Program]:
        return started(self._place, self._inside(template), Attachment(InputKind.PIPE))

    def _inside(self, template: str) -> Sequence[str]:
        return self._place.engine.terminal.inside(template)
