"""Running commands on one node over any `Transport`, which can do nothing but start a `sh`.

Everything goes through the stdin of such a shell: there is no argv in which another user could read it, no login
shell that could quote it differently, and no length limit. A shell answers with marks on both its streams that carry
a random number, so that the bytes between two marks are exactly what the command wrote.

Each shell is the leader of its own process group. Ending a command early therefore means ending the group of its
shell, and nothing it had started stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from agentless.errors import NoAnswer, NoSession, Refused, Timeout, TooMuch, Unreachable
from agentless.model.command import Command, Result
from agentless.model.nodes.sessions import Sessions
from agentless.model.terminal import Size
from agentless.model.text import last_words
from agentless.ports import Shell, Terminal, Transport

_T = TypeVar("_T")

SHELLS = 3
"""Short commands that run at once on one node; each has a shell of its own, which is kept for the next one.

Where the node gives fewer, they take turns."""
START_TIMEOUT = 20.0
"""Seconds in which a shell must have started: the rc files of a login shell may be slow, a dead link is silent."""
KILL_TIMEOUT = 5.0
GUARD_GRACE = 5.0
"""Seconds by which the node's own guard ends a command later than we do: it is for the time when we are gone."""
CHUNK = 256 * 1024
GREETING = 1 << 20
"""Bytes that a login shell may print before it does what it is told: a message of the day has a few thousand."""
PIPE_GRACE = 5
"""Seconds between SIGTERM and SIGKILL to what a pipe that was left, or broke, has started: it may have to tidy up."""
_HAS_TERMINAL = "(: </dev/tty) || exit\n"
"""A terminal that was hung up before the script had it would never tell it so: then nothing is run."""

LEAST_PROCESSES = 32
"""Processes and threads that a login has to be allowed: three shells with their guards, and a docker command."""
_LIMIT = """\
while read -r _al_a _al_b _al_c _al_d; do case $_al_a$_al_b in Maxprocesses) _al_p=$_al_c ;; esac; \
done </proc/$$/limits; while read -r _al_a _al_b _al_c; do case $_al_a$_al_b in Uid:0) _al_p= ;; esac; \
done </proc/$$/status; case $_al_p in *[!0-9]* | ???????*) _al_p= ;; esac
"""
"""How many processes the login may have, without one more: `ulimit` has another option for it in each shell. Nothing
for root, whom the kernel allows any number."""
_GREETING = """\
read -r _al_a _al_b _al_c _al_d _al_g _al_e </proc/$$/stat; [ "$_al_g" = $$ ] || exec setsid sh -c '\
printf "%s%s;" {mark} $$; printf "%s%s;" {mark} "$1" >&2; exec sh' sh "${{_al_p:-0}}"; \
printf '%s%s;' {mark} $$; printf '%s%s;' {mark} "${{_al_p:-0}}" >&2
"""
"""Says the process group of the shell, whatever an rc file has printed before. Not every SSH server gives a shell a
group of its own (OpenSSH does, dropbear does not); `setsid` does then."""

_PRELUDE = """\
exec 4>&2 2>/dev/null
_al_guard() { ( trap '[ "$!" = "$_al_w" ] || kill -9 "$!"; exit' TERM; eval "exec $1" & wait "$!" && kill -9 0 ) \
</dev/null >/dev/null 4>&- & _al_w=$!; }
_al_mark() { printf '%s' "$1"; printf '%s' "$1" >&4; }
_al_script() { ( _al_s=$1; set --; eval "$_al_s" ) 2>&4 4>&-; }
_al_run() { _al_mark "$2<0;"; _al_guard "sleep $1"; _al_script "$3"; _al_c=$?; kill "$_al_w"; \
_al_mark "$2>$_al_c;"; wait "$_al_w"; }
_al_leash() { _al_guard 'cat <&3'; _al_script "$1" 3<&-; _al_c=$?; kill "$_al_w"; exit "$_al_c"; }
_al_parent() { read -r _al_a _al_b _al_c _al_p _al_d </proc/$$/stat; }
_al_second() { sleep 1 & wait "$!"; }
_al_tether() { ( trap '' HUP TERM; trap 'kill -9 "$!"; exit' USR1; \
while _al_second && _al_parent && [ "$_al_p" = "$1" ]; do :; done; \
kill -s TERM 0; for _al_i in $2; do _al_second; done; kill -9 0 ) </dev/null >/dev/null 4>&- & _al_w=$!; }
_al_pipe() { trap : HUP TERM; _al_parent; _al_tether "$_al_p" "$3"; _al_mark "$1<0;"; _al_script "$2"; \
_al_c=$?; kill -s USR1 "$_al_w"; wait "$_al_w"; exit "$_al_c"; }
"""
"""What a shell is taught. A guard waits for a program to end and then kills the group it is in, itself included; it is
called off with SIGTERM, takes its program along (with SIGKILL, which a child that has not yet exec'd cannot lose), and
touches only a child of its own (`$!` is inherited). `_al_run` is guarded by time, `_al_leash` by the shell's stdin,
which `_al_pipe` has given away: it looks each second whether who started the shell is still there."""


def backoff(attempt: int, random: float) -> float:
    """Seconds to wait before connection try `attempt` (from 0): doubles from 0.5 s to 30 s at most.

    `random` in [0, 1) takes up to half of it away, so that a hundred nodes do not come back in one moment.
    """
    return min(30.0, 0.5 * 2.0 ** min(attempt, 10)) * (1.0 - random / 2)


class Allowance:
    """How much may come: `most` at once, and `rate` more with each second. Time is that of the running loop."""

    def __init__(self, most: float, rate: float) -> None:
        self._most, self._rate = most, rate
        self._left, self._at = most, asyncio.get_running_loop().time()

    def take(self, amount: float) -> float:
        """Take so much of it; the seconds that it is too early for that, 0 when it is not."""
        now = asyncio.get_running_loop().time()
        self._left = min(self._most, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._left / self._rate)


class Stream:
    """The output of a command while it runs: iterate for `(1 or 2, bytes)`; `exit_code` is known when it has ended."""

    def __init__(self, shell: Shell, noticing: Callable[[], AbstractContextManager[None]]) -> None:
        self.exit_code: int | None = None
        self._shell = shell
        self._noticing = noticing

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        with self._noticing():
            chunk = await self._shell.read()
            if chunk is not None:
                return chunk
            self.exit_code = await self._shell.wait()
        raise StopAsyncIteration


class Session:
    """One node, kept connected. `name` is what it is called in messages."""

    def __init__(self, transport: Transport, name: str = "the node") -> None:
        self._transport = transport
        self._name = name
        self._connected = False
        self._processes: int | None = None
        self._slots = asyncio.Semaphore(SHELLS)
        self._idle: list[_Worker] = []
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

    async def run(self, command: Command, heard: Callable[[bytes], None] | None = None) -> Result:
        """Run a script to its end and return both its streams; a non-zero exit is a result.

        Up to `SHELLS` commands run at once, a further one waits; one with `stdin` has a shell of its own and does
        not. Raises Timeout when it did not end in its time, TooMuch when it said more than it may, and Unreachable when
        the connection broke. After a Timeout, a TooMuch and a cancellation nothing that it had started is left on the
        node. `heard` is given its standard output so far, each time that there is more.
        """
        if command.stdin is not None:
            return await self._finish(await self._open(), command, _pieces(command.stdin))
        async with self._slots:
            while self._idle:
                with contextlib.suppress(_NeverStarted):
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

        It is on a leash: when the stream is left, or we die, or the node's sshd sees the link break, the script and
        everything it had started is killed. `stdin` and `timeout` of the command have no meaning here. A slow reader
        slows the script down. Iterating raises Unreachable when the connection broke. `own` and `wait` are as in
        `Transport.shell`; entering raises NoSession.
        """
        worker = await self._open(own=own, wait=wait)
        try:
            with self._noticing():
                await worker.shell.write(_line("_al_leash", command.text()) + b" 3<&0 </dev/null; exit\n")
            yield Stream(worker.shell, self._noticing)
        finally:
            await worker.shell.close()

    @contextlib.asynccontextmanager
    async def dialogue(self, command: Command) -> AsyncIterator[Shell]:
        """Run a script in a shell of its own that reads what is written to it, once it has said something.

        Left, it has its input broken off, and no more: it has to end by that itself.
        """
        worker = await self._open()
        try:
            with self._noticing():
                await worker.shell.write(_line("_al_script", command.text()) + b"; exit\n")
                yield worker.shell
        finally:
            await worker.shell.close()

    @contextlib.asynccontextmanager
    async def pipe(self, command: Command) -> AsyncIterator[Pipe]:
        """Run a script in a shell of its own, whose stdin is what is written: any bytes, up to `write_eof`.

        It is leashed, gently: when it is left before its end, or the node's sshd sees the link break, all that it has
        started gets SIGTERM, and SIGKILL `PIPE_GRACE` seconds later. Its input has ended by then, which a script has to
        tell from the real end, and its output leads nowhere: who tidies up traps SIGPIPE, too. `stdin` and `timeout` of
        the command have no meaning here.
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
        """Run a script on a pseudo-terminal of its own. Left, it is hung up, and has to end by that itself."""
        if not self.connected:
            raise Unreachable(f"{self._name} is not connected")
        terminal = await self._kept(self._start_terminal(command, size), lambda terminal: terminal.close())
        try:
            with self._noticing():
                yield terminal
        finally:
            await terminal.close()

    async def _worker(self) -> _Worker:
        """A shell for a short command: a new one, or where the node gives no further one the next that is idle."""
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

    async def _finish_next(self, worker: _Worker, command: Command, heard: Callable[[bytes], None] | None) -> Result:
        self._working += 1
        try:
            return await self._finish(worker, command, heard=heard)
        finally:
            self._working -= 1
            self._returned.set()

    async def _finish(
        self,
        worker: _Worker,
        command: Command,
        data: AsyncIterator[bytes] | None = None,
        heard: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run it in this shell, which is idle afterwards or gone."""
        try:
            with self._noticing():
                async with asyncio.timeout(command.timeout):
                    return await worker.run(command, data, heard)
        except _FloodedError:
            raise TooMuch(
                f"{self._name} said more than {command.most >> 20} MiB in answer to one command, which was ended; see "
                "what docker, nvidia-smi and the shell print there"
            ) from None
        except TimeoutError:
            raise Timeout(
                f"{self._name} did not finish a command within {command.timeout:g} s; what it had started was ended"
            ) from None
        finally:
            if worker.idle and self.connected:
                self._idle.append(worker)
            else:
                await asyncio.shield(self._chore(self._end(worker)))

    async def _end(self, worker: _Worker) -> None:
        """Let go of a shell and, through another one, of everything that the command in it has started."""
        if worker.busy and self.connected:
            await self._elsewhere(b"kill -s KILL -- -%d\n" % worker.group, KILL_TIMEOUT)
        await worker.shell.close()

    async def _hang_up(self, worker: _Worker) -> None:
        """Let go of a pipe, which ends most programs by itself, and see to it that nothing of it is left."""
        await worker.shell.close()
        if worker.busy and self.connected:
            gone = b"kill -s 0 -- -%d 2>/dev/null || exit; " % worker.group
            wait = (gone + b"sleep 1\n") * PIPE_GRACE
            script = b"kill -s TERM -- -%d\n%bkill -s KILL -- -%d\n" % (worker.group, wait, worker.group)
            await self._elsewhere(script, KILL_TIMEOUT + PIPE_GRACE)

    async def _elsewhere(self, script: bytes, within: float) -> None:
        """Run a script in a shell of its own, if the node still can: if not, its own guards end what is there."""
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

    async def _open(self, *, own: bool = False, wait: bool = True) -> _Worker:
        """A greeted shell."""
        if not self.connected:
            raise Unreachable(f"{self._name} is not connected")
        return await self._kept(self._greet(own=own, wait=wait), lambda worker: worker.shell.close())

    async def _kept(self, opening: Coroutine[Any, Any, _T], close: Callable[[_T], Coroutine[Any, Any, None]]) -> _T:
        """What is being opened. If the caller is cancelled meanwhile, it is let go of as soon as it is there."""
        chore = self._chore(opening)
        try:
            return await asyncio.shield(chore)
        except asyncio.CancelledError:
            chore.add_done_callback(lambda chore: self._let_go(chore, close))
            raise

    async def _greet(self, *, own: bool, wait: bool) -> _Worker:
        with self._noticing():
            try:
                worker = _Worker(await self._transport.shell(own=own, wait=wait))
                try:
                    async with asyncio.timeout(START_TIMEOUT):
                        processes = await worker.greet(asks=self._processes is None)
                    self._processes = processes if self._processes is None else self._processes
                    if 0 < self._processes < LEAST_PROCESSES:
                        raise Unreachable(
                            f"{self._name} limits the processes of the login to {self._processes}, and agentless "
                            f"needs {LEAST_PROCESSES} at least; raise ulimit -u there"
                        )
                except BaseException:
                    await worker.shell.close()
                    raise
                return worker
            except TimeoutError:
                raise Timeout(
                    f"{self._name} started no shell within {START_TIMEOUT:g} s; see what its login shell does at start"
                ) from None
            except _FloodedError:
                raise TooMuch(
                    f"{self._name} prints more than {GREETING >> 20} MiB before its shell begins; see what its login "
                    "shell does at start"
                ) from None
            except _Ended as end:
                words = last_words(end.err) or last_words(end.out)
                said = f" and said: {words}" if words else ""
                raise Unreachable(
                    f"{self._name} ended the shell at once{said}; see whether `ssh HOST exec sh` works with its login "
                    "shell"
                ) from None

    async def _start_terminal(self, command: Command, size: Size) -> Terminal:
        with self._noticing():
            try:
                return await self._transport.terminal(_HAS_TERMINAL + command.text(), size)
            except TimeoutError:
                raise Timeout(f"{self._name} gave no terminal in time; try again") from None

    def _let_go(self, opening: asyncio.Task[_T], close: Callable[[_T], Coroutine[Any, Any, None]]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._chore(close(opening.result()))

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """Marks the session as broken when what breaks in it is the connection, and not just one of several."""
        try:
            yield
        except Unreachable:
            self._connected = self.connected
            raise

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().shell.close()

    def _chore(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start what must come to its end, even if the caller is cancelled meanwhile."""
        chore = asyncio.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
        return chore


class Pipe:
    """A script whose stdin is what is written here: a `Shell` that has said nothing yet. Its exit code is `wait()`."""

    def __init__(self, worker: _Worker, noticing: Callable[[], AbstractContextManager[None]]) -> None:
        self._worker = worker
        self._noticing = noticing

    async def begin(self, command: Command) -> None:
        """Start the script. Not before the shell has said that it did: until then it may read ahead."""
        with self._noticing():
            await self._worker.start_pipe(command)

    async def read(self) -> tuple[int, bytes] | None:
        """As `Shell.read`; each piece is at most as long as those of the transport."""
        with self._noticing():
            return await self._worker.read()

    async def write(self, data: bytes) -> None:
        """As `Shell.write`."""
        with self._noticing():
            await self._worker.shell.write(data)

    async def write_eof(self) -> None:
        """As `Shell.write_eof`."""
        await self._worker.shell.write_eof()

    async def wait(self) -> int:
        """As `Shell.wait`."""
        return await self._worker.shell.wait()


class _NeverStarted(NoAnswer):
    """The shell was gone before it took the command; the connection need not be."""


class _FloodedError(Exception):
    """More came than may come before the mark."""


class _Ended(Exception):
    """The shell ended before its mark came."""

    def __init__(self, out: bytes, err: bytes) -> None:
        super().__init__()
        self.out, self.err = out, err


class _Worker:
    """A shell that speaks in marks: `NUMBER<0;` before the output of a command, `NUMBER>EXIT CODE;` after it.

    `group` is its process group, `busy` whether something of a command may be in it, `idle` whether it can take one.
    """

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.group = 0
        self.busy = False
        self.idle = False
        self._seen = {1: bytearray(), 2: bytearray()}

    async def greet(self, *, asks: bool) -> int:
        """Get past whatever the login shell printed, and learn the process group. Raises _Ended.

        Gives how many processes the login may have if it `asks`; 0: any number.
        """
        mark = f"{secrets.token_hex(16)}="
        await self.shell.write((_LIMIT * asks + _GREETING.format(mark=mark)).encode())
        found = await self._until(mark, GREETING)
        self.group = found[1][0]
        await self.shell.write(_PRELUDE.encode())
        return found[2][0]

    async def run(
        self,
        command: Command,
        data: AsyncIterator[bytes] | None = None,
        heard: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run one command. The end of the shell itself is an end like any other: a script may kill it."""
        self.busy, self.idle = True, False
        number = secrets.token_hex(16)
        guard = str(math.ceil(command.timeout + GUARD_GRACE))
        after = b" </dev/null\n" if data is None else b"; exit\n"
        await self.shell.write(_line("_al_run", guard, number, command.text()) + after)
        try:
            await self._until(f"{number}<", GREETING)
        except _Ended:
            self.busy = False
            raise _NeverStarted("the shell on the node ended before it took the command") from None
        try:
            # Only now: a shell may have read ahead while it was looking for the end of the line.
            ending = self._until(f"{number}>", command.most, heard)
            found = await (ending if data is None else self._fed(data, ending))
            self.busy, self.idle = False, data is None
            return Result(found[1][0], found[1][1], found[2][1])
        except _Ended as end:
            return Result(await self.shell.wait(), end.out, end.err)

    async def start_pipe(self, command: Command) -> None:
        """Run one command that reads the shell's own stdin; its output is for `read`."""
        self.busy = True
        number = secrets.token_hex(16)
        await self.shell.write(_line("_al_pipe", number, command.text(), "i " * PIPE_GRACE) + b"; exit\n")
        try:
            await self._until(f"{number}<", GREETING)
        except _Ended:
            self.busy = False
            raise Unreachable("the shell on the node ended before it took the command") from None
        except _FloodedError:
            raise TooMuch(f"the shell on the node says more than {GREETING >> 20} MiB before it begins") from None

    async def read(self) -> tuple[int, bytes] | None:
        """What comes next of what is no mark any more."""
        for fd, seen in self._seen.items():
            if seen:
                data = bytes(seen)
                seen.clear()
                return fd, data
        chunk = await self.shell.read()
        self.busy = self.busy and chunk is not None
        return chunk

    async def _fed(self, data: AsyncIterator[bytes], ending: Coroutine[Any, Any, _T]) -> _T:
        """What comes of `ending` while the data goes in; raises what goes wrong with the data."""
        both = asyncio.create_task(ending), asyncio.create_task(self._feed(data))
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if both[0] not in done:
                both[1].result()
            return await both[0]
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _feed(self, data: AsyncIterator[bytes]) -> None:
        async for piece in data:
            await self.shell.write(piece)
        await self.shell.write_eof()

    async def _until(
        self, mark: str, most: int, heard: Callable[[bytes], None] | None = None
    ) -> dict[int, tuple[int, bytes]]:
        """Read up to the mark on both streams: of each (1, 2) the number in it, and what came before it.

        Raises _FloodedError when more than `most` bytes come.
        """
        size = 0
        found: dict[int, tuple[int, bytes]] = {}
        searched = {1: 0, 2: 0}
        wanted = mark.encode()
        if heard is not None and self._seen[1]:
            heard(bytes(self._seen[1]))  # it came along with the mark before
        while True:
            for fd, seen in self._seen.items():
                at = -1 if fd in found else seen.find(wanted, searched[fd])
                end = -1 if at < 0 else seen.find(b";", at)
                if end >= 0:
                    number = bytes(seen[at + len(wanted) : end])
                    if not re.fullmatch(rb"[0-9]{1,10}", number):
                        raise Unreachable("what should be a shell on the node answers as none does")
                    found[fd] = int(number), bytes(seen[:at])
                    del seen[: end + 1]
                else:
                    searched[fd] = max(0, len(seen) - len(wanted)) if at < 0 else at
            if len(found) == 2:
                return found
            chunk = await self.shell.read()
            if chunk is None:
                out, err = (found[fd][1] if fd in found else bytes(self._seen[fd]) for fd in (1, 2))
                raise _Ended(out, err)
            self._seen[chunk[0]] += chunk[1]
            size += len(chunk[1])
            if size > most:
                raise _FloodedError
            if heard is not None and chunk[0] == 1:
                heard(bytes(self._seen[1]))


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(data), CHUNK):
        yield bytes(view[start : start + CHUNK])


def _line(*words: str) -> bytes:
    """The words of a shell command; what is no UTF-8 in an argument of ours passes as it came."""
    return shlex.join(words).encode("utf-8", "surrogateescape")
