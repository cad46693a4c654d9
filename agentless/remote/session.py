"""Runs commands on one node over any `Transport`, which can only start a `sh`.

A command goes through the stdin of such a shell: no other user can read it from an argv, no login shell quotes it
differently, and it may have any length. The shell prints marks with a random number on both its streams, so that the
bytes between two marks are exactly what the command wrote.

Each shell leads its own process group. To end a command early is to end that group, so that nothing it started stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from agentless.errors import NoAnswer, NoSession, Refused, Timeout, TooMuch, Unreachable
from agentless.model.command import Command, Result
from agentless.model.nodes.sessions import Sessions
from agentless.model.terminal import Size
from agentless.model.text import last_words
from agentless.ports import Shell, Terminal, Transport
from agentless.remote import guards
from agentless.remote.streams import Pipe, Stream
from agentless.remote.worker import GREETING, EndedError, FloodedError, NeverStarted, Worker, pieces

_T = TypeVar("_T")

SHELLS = 3
"""Short commands that run at once on one node. Each has a shell, which is kept for the next one.

If the node gives fewer shells, they take turns."""
START_TIMEOUT = 20.0
"""Seconds for the start of a shell: the rc files of a login shell may be slow, and a dead link is silent."""
KILL_TIMEOUT = 5.0
LEAST_PROCESSES = 32
"""Processes and threads that a login has to be allowed: three shells with their guards, and a docker command."""


class Session:
    """One node, kept connected. `name` is what it is called in messages, `programs` are what is mostly run there.

    Of the last shell that started, `noise` is how many bytes it printed before its first command, and `began` how many
    seconds it took until then.
    """

    def __init__(self, transport: Transport, name: str = "the node", programs: Sequence[str] = ()) -> None:
        self._transport = transport
        self._name = name
        self._programs = " and ".join(filter(None, (", ".join(programs), "the shell")))
        self._connected = False
        self.noise: int | None = None
        self.began: float | None = None
        self._processes: int | None = None
        self._slots = asyncio.Semaphore(SHELLS)
        self._idle: list[Worker] = []
        self._working = 0
        self._starting = asyncio.Lock()
        self._returned = asyncio.Event()
        self._chores: set[asyncio.Task[Any]] = set()

    @property
    def connected(self) -> bool:
        """False from the moment that the connection broke, or was closed, until the next `connect()`."""
        return self._connected and self._transport.alive

    @property
    def sessions(self) -> Sessions | None:
        """What is in use of what the node allows, None where nothing limits it."""
        return self._transport.sessions

    @property
    def address(self) -> str:
        """Which of several addresses has answered; see `Transport.address`."""
        return self._transport.address

    async def connect(self) -> None:
        """Reach the node; raises Unreachable, AuthFailed or HostKeyRejected. May be called again after a break."""
        if not self.connected:
            await self._drop_idle()
            self._processes = None
        await self._transport.connect()
        self._connected = True

    async def close(self) -> None:
        """End the connection; what is in flight raises Unreachable, streams end on the node. Never raises."""
        self._connected = False
        await self._drop_idle()
        await self._transport.close()
        if self._chores:
            await asyncio.wait(self._chores)

    def flooded(self, what: str) -> TooMuch:
        """The error for a node that sends more than it may."""
        return TooMuch(f"{self._name} {what}; check the output of {self._programs} there")

    async def run(self, command: Command, heard: Callable[[bytes], None] | None = None) -> Result:
        """Run a script to its end and return both its streams; a non-zero exit is a result.

        Up to `SHELLS` commands run at once, a further one waits; one with `stdin` has a shell of its own and does
        not. Raises Timeout when it did not end in its time, TooMuch when it said more than it may, and Unreachable when
        the connection broke. After a Timeout, a TooMuch and a cancellation nothing that it had started is left on the
        node. `heard` is given its standard output so far, each time that there is more.
        """
        if command.stdin is not None:
            return await self._finish(await self._open(), command, pieces(command.stdin))
        async with self._slots:
            while self._idle:
                with contextlib.suppress(NeverStarted):
                    return await self._finish_next(self._idle.pop(), command, heard)
            return await self._finish_next(await self._worker(), command, heard)

    async def feed(self, command: Command, data: AsyncIterator[bytes]) -> Result:
        """Run a script that reads what comes out of `data`, in a shell of its own, to its end.

        No more is asked of `data` than the node takes. When that raises, or the caller is cancelled, all that the
        script has started is killed; when the link breaks, its input ends. Else as `run`; `stdin` has no meaning here.
        """
        return await self._finish(await self._open(), command, data)

    @contextlib.asynccontextmanager
    async def stream(self, command: Command, *, own: bool = False, wait: bool = True) -> AsyncIterator[Stream]:
        """Run a script in a shell of its own and read its output as it comes, without an end in time.

        When the stream is closed, the controller dies, or the node's sshd notices that the link broke, the script and
        all that it started are killed. `stdin` and `timeout` of the command are not used. A slow reader slows the
        script down. Iterating raises Unreachable when the connection broke. `own` and `wait` are as in
        `Transport.shell`; entering raises NoSession.
        """
        worker = await self._open(own=own, wait=wait)
        try:
            with self._noticing():
                await worker.shell.write(guards.leash(command))
            yield Stream(worker.shell, self._noticing)
        finally:
            await worker.shell.close()

    @contextlib.asynccontextmanager
    async def dialogue(self, command: Command) -> AsyncIterator[Shell]:
        """Run a script in a shell of its own that reads what is written to it, after its first output.

        When this is closed, the script's input ends, and nothing else: the script has to end by itself then.
        """
        worker = await self._open()
        try:
            with self._noticing():
                await worker.shell.write(guards.dialogue(command))
                yield worker.shell
        finally:
            await worker.shell.close()

    @contextlib.asynccontextmanager
    async def pipe(self, command: Command) -> AsyncIterator[Pipe]:
        """Run a script in a shell of its own, whose stdin is what is written: any bytes, up to `write_eof`.

        When the pipe is closed early, or the node's sshd notices that the link broke, all that the script started gets
        SIGTERM, and SIGKILL `PIPE_GRACE` seconds later. By then its input has ended, which the script has to tell from
        the real end, and nobody reads its output: a script that tidies up traps SIGPIPE, too. `stdin` and `timeout` of
        the command are not used.
        """
        worker = await self._open()
        pipe = Pipe(worker, self._noticing)
        try:
            await pipe.begin(command)
            yield pipe
        finally:
            await asyncio.shield(self._chore(self._hang_up(worker)))

    @contextlib.asynccontextmanager
    async def terminal(self, command: Command, size: Size) -> AsyncIterator[Terminal]:
        """Run a script on a pseudo-terminal of its own. Closed, it is hung up, and has to end by itself."""
        if not self.connected:
            raise Unreachable(f"{self._name} is not connected")
        terminal = await self._kept(self._start_terminal(command, size), lambda terminal: terminal.close())
        try:
            with self._noticing():
                yield terminal
        finally:
            await terminal.close()

    async def _worker(self) -> Worker:
        """A shell for a short command: a new one, or the next idle one if the node gives no more."""
        async with self._starting:
            while not self._idle:
                try:
                    return await self._open(own=True, wait=not self._working)
                except NoSession:
                    if not self._working and not self._idle:
                        raise
                while self._working and not self._idle:
                    self._returned.clear()
                    await self._returned.wait()
            return self._idle.pop()

    async def _finish_next(self, worker: Worker, command: Command, heard: Callable[[bytes], None] | None) -> Result:
        self._working += 1
        try:
            return await self._finish(worker, command, heard=heard)
        finally:
            self._working -= 1
            self._returned.set()

    async def _finish(
        self,
        worker: Worker,
        command: Command,
        data: AsyncIterator[bytes] | None = None,
        heard: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run it in this shell, which is idle or closed afterwards."""
        try:
            with self._noticing():
                async with asyncio.timeout(command.timeout):
                    return await worker.run(command, data, heard)
        except FloodedError:
            said = f"sent more than {command.most >> 20} MiB for one command, so agentless ended it"
            raise self.flooded(said) from None
        except TimeoutError:
            raise Timeout(
                f"{self._name} did not finish a command within {command.timeout:g} s; agentless ended it"
            ) from None
        finally:
            if worker.idle and self.connected:
                self._idle.append(worker)
            else:
                await asyncio.shield(self._chore(self._end(worker)))

    async def _end(self, worker: Worker) -> None:
        """Close a shell and, through another one, end everything that its command has started."""
        if worker.busy and self.connected:
            await self._elsewhere(guards.kill(worker.group), KILL_TIMEOUT)
        await worker.shell.close()

    async def _hang_up(self, worker: Worker) -> None:
        """Close a pipe, which by itself ends most programs, and then end what is left of it."""
        await worker.shell.close()
        if worker.busy and self.connected:
            await self._elsewhere(guards.end(worker.group), KILL_TIMEOUT + guards.PIPE_GRACE)

    async def _elsewhere(self, script: bytes, within: float) -> None:
        """Run a script in a shell of its own, if the node still can. If not, its guards end what runs."""
        with contextlib.suppress(TimeoutError, NoAnswer, Refused):
            async with asyncio.timeout(within):
                killer = await self._transport.shell(own=True)
                try:
                    await killer.write(script)
                    await killer.write_eof()
                    while await killer.read() is not None:
                        pass
                finally:
                    await killer.close()

    async def _open(self, *, own: bool = False, wait: bool = True) -> Worker:
        """A greeted shell."""
        if not self.connected:
            raise Unreachable(f"{self._name} is not connected")
        return await self._kept(self._greet(own=own, wait=wait), lambda worker: worker.shell.close())

    async def _kept(self, opening: Coroutine[Any, Any, _T], close: Callable[[_T], Coroutine[Any, Any, None]]) -> _T:
        """The result of `opening`. If the caller is cancelled meanwhile, it is closed as soon as it is open."""
        chore = self._chore(opening)
        try:
            return await asyncio.shield(chore)
        except asyncio.CancelledError:
            chore.add_done_callback(lambda chore: self._let_go(chore, close))
            raise

    async def _greet(self, *, own: bool, wait: bool) -> Worker:
        with self._noticing():
            try:
                worker = Worker(await self._transport.shell(own=own, wait=wait))
                try:
                    asked = asyncio.get_running_loop().time()
                    async with asyncio.timeout(START_TIMEOUT):
                        processes = await worker.greet(asks=self._processes is None)
                    self.noise, self.began = worker.noise, asyncio.get_running_loop().time() - asked
                    self._processes = processes if self._processes is None else self._processes
                    if 0 < self._processes < LEAST_PROCESSES:
                        raise Unreachable(
                            f"{self._name} limits the login to {self._processes} processes, but agentless needs at "
                            f"least {LEAST_PROCESSES}; raise ulimit -u there"
                        )
                except BaseException:
                    await worker.shell.close()
                    raise
                return worker
            except TimeoutError:
                raise Timeout(
                    f"{self._name} did not start a shell within {START_TIMEOUT:g} s; check the startup files of its "
                    "login shell"
                ) from None
            except FloodedError:
                raise TooMuch(
                    f"{self._name} prints more than {GREETING >> 20} MiB before its shell starts; check the startup "
                    "files of its login shell"
                ) from None
            except EndedError as end:
                words = (last_words(end.err) or last_words(end.out)).removesuffix(".")
                said = f" with: {words}" if words else ""
                raise Unreachable(
                    f"{self._name} ended the shell immediately{said}; check that the login may run sh: its login shell "
                    "(chsh -s /bin/sh), ForceCommand, and command= in authorized_keys there"
                ) from None

    async def _start_terminal(self, command: Command, size: Size) -> Terminal:
        with self._noticing():
            try:
                return await self._transport.terminal(guards.on_terminal(command), size)
            except TimeoutError:
                raise Timeout(f"{self._name} did not open a terminal in time; retry") from None

    def _let_go(self, opening: asyncio.Task[_T], close: Callable[[_T], Coroutine[Any, Any, None]]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._chore(close(opening.result()))

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """Marks the session as broken when its connection breaks, not just one of several."""
        try:
            yield
        except Unreachable:
            self._connected = self.connected
            raise

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().shell.close()

    def _chore(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start work that must end, even if the caller is cancelled meanwhile."""
        chore = asyncio.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
        return chore
