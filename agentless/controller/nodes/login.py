"""Any number of programs in one container, for somebody who has logged in to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.program import Program, started
from agentless.model.terminal import Attachment, InputKind
from agentless.rules.tasks.entry import Gate


class Login:
    """Starts programs in a container, which `container` names. Call `opened` when somebody has logged in.

    `gate` is what has to be proved before, None if the kernel's word is enough.
    """

    def __init__(self, link: NodeLink, container: str, opened: Callable[[], None], gate: Gate | None = None) -> None:
        self.container = container
        self.opened = opened
        self.gate = gate
        self._link = link

    def shell(self, line: str | None, attached: Attachment) -> AbstractAsyncContextManager[Program]:
        """Run a command line, or a shell without one."""
        words = () if line is None else (*self._inside("container-command.sh.j2"), line)
        return self._program(words, attached)

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
        return self._program(self._inside(template), Attachment(InputKind.PIPE))

    def _inside(self, template: str) -> Sequence[str]:
        return self._link.runtime.terminal.inside(template)

    def _program(self, command: Sequence[str], attached: Attachment) -> AbstractAsyncContextManager[Program]:
        return started(self._link, self.container, command, attached)
