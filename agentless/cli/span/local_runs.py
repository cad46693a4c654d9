"""Runs commands on this machine: some at a time, their outputs kept apart, all ended when we end."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from agentless.signals import defaults_for_children

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL after a signal to us."""

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
_PIPE = 1 << 20  # the most bytes that a pipe holds
_TURN = 0.05  # seconds between two checks of process groups that should end
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class LocalRun:
    """A command and its result: the exit code (`None`: not started, 128 + n: signal n) and its seconds.

    `failure` is why it could not be started: its exit code is 127 if there is no such program, else 126.
    """

    argv: Sequence[str]
    label: str
    code: int | None = None
    seconds: float = 0.0
    failure: str | None = None


class RunObserver(Protocol):
    """Is notified of starts and ends."""

    def began(self, run: LocalRun) -> None:
        """Called when a run has started."""

    def ended(self, run: LocalRun) -> None:
        """Called when a run has ended, or could not be started."""

    def ending(self, live: int) -> None:
        """Called after a signal, when `live` runs were asked to end."""


class LocalRuns:
    """Runs commands, `at_once` of them at a time.

    A single one at a time has our own stdout and stderr. Of several, each line is prefixed with the label of its
    run, and one of more than 64 KiB is cut; no other output is held in memory. Their stdin is empty. Each has a
    session of its own, so keys typed at the terminal reach only us. A command has ended when its first process has.

    With `fail_fast`, no more are started after the first failure. SIGINT, SIGTERM and SIGHUP end the running ones
    (SIGTERM to their process groups; SIGKILL after GRACE, or at the second such signal), and so does a closed
    output.
    """

    def __init__(self, runs: Sequence[LocalRun], watcher: RunObserver, *, at_once: int, fail_fast: bool) -> None:
        self._waiting = deque(runs)
        self._watcher = watcher
        self._at_once = at_once
        self._fail_fast = fail_fast
        self._selector = selectors.DefaultSelector()
        self._live: list[_Live] = []
        self._obeyed = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._signal: int | None = None
        self._kill_at = math.inf  # finite once we are ending

    def run(self) -> int | None:
        """Run them all. Returns the signal that ended it, None if all came to their ends.

        Raises OSError if their output or the watcher's cannot be written; they have ended then.
        """
        broken: OSError | None = None
        with _signals(self._obeyed) as signals, self._selector:
            self._selector.register(signals, selectors.EVENT_READ)
            try:
                while self._live or self._waiting:
                    try:
                        self._start()
                        self._hear(signals)
                        self._reap()
                    except OSError as error:
                        broken = broken or error
                        self._hang_up()
            finally:
                for live in self._live:
                    live.signal(signal.SIGKILL)
        if broken is not None:
            raise broken
        return self._signal

    def _start(self) -> None:
        while self._waiting and len(self._live) < self._at_once:
            run = self._waiting.popleft()
            self._watcher.began(run)
            try:
                live = _Live(run, piped=self._at_once > 1)
            except (OSError, ValueError) as error:
                run.code = 127 if isinstance(error, FileNotFoundError) else 126
                run.failure = str(getattr(error, "strerror", None) or error)
                self._done(run)
                continue
            self._live.append(live)
            for pipe in live.pipes:
                self._selector.register(pipe, selectors.EVENT_READ, live)

    def _hear(self, signals: int) -> None:
        """Wait for output, the end of a process, or a signal."""
        if not self._live:
            return
        for key, _ in self._selector.select(None if self._kill_at == math.inf else _TURN):
            if key.data is None:
                for number in os.read(signals, _CHUNK):
                    if number in self._obeyed:
                        self._obey(number)
            elif not key.data.copy(key.fd):
                self._selector.unregister(key.fd)

    def _reap(self) -> None:
        if time.monotonic() >= self._kill_at:
            for live in self._live:
                live.signal(signal.SIGKILL)
        ending = self._kill_at != math.inf
        for live in [one for one in self._live if one.is_over(with_group=ending)]:
            self._live.remove(live)
            for pipe in live.pipes:
                self._selector.unregister(pipe)
            try:
                live.finish()
            finally:
                self._done(live.run)

    def _done(self, run: LocalRun) -> None:
        if run.code and self._fail_fast:
            self._waiting.clear()
        self._watcher.ended(run)

    def _obey(self, number: int) -> None:
        """End all runs: gently at the first signal, at once at the second."""
        if self._kill_at != math.inf:
            self._kill_at = 0.0
            return
        self._signal = number
        self._end()
        self._watcher.ending(len(self._live))

    def _end(self) -> None:
        self._waiting.clear()
        self._kill_at = time.monotonic() + GRACE
        for live in self._live:
            live.signal(signal.SIGTERM)

    def _hang_up(self) -> None:
        """Nobody reads our output: close the pipes, so that the commands end."""
        for live in self._live:
            for pipe in live.pipes:
                self._selector.unregister(pipe)
            live.hang_up()
        if self._kill_at == math.inf:
            self._end()


class _Live:
    """A running command. Raises OSError or ValueError if it cannot be started."""

    def __init__(self, run: LocalRun, *, piped: bool) -> None:
        self.run = run
        self._began = time.monotonic()
        where = subprocess.PIPE if piped else None
        self._process = subprocess.Popen(
            run.argv, stdin=subprocess.DEVNULL, stdout=where, stderr=where, bufsize=0, start_new_session=True
        )
        self._killed = False
        label = f"{run.label} | ".encode(errors="replace")
        ours = ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr))
        self.pipes = {pipe.fileno(): _Lines(label, out.buffer) for pipe, out in ours if pipe is not None}

    def copy(self, pipe: int) -> bool:
        """Pass on what can be read now; False at the end of the pipe."""
        data = os.read(pipe, _CHUNK)
        if data:
            self.pipes[pipe].feed(data)
        else:
            self.pipes.pop(pipe).end()
        return bool(data)

    def hang_up(self) -> None:
        self.pipes.clear()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def signal(self, number: int) -> None:
        """Send it to the whole process group, which may outlive its first process."""
        self._killed = self._killed or number == signal.SIGKILL
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def is_over(self, *, with_group: bool) -> bool:
        """Whether the process has ended; `with_group`: and all that it started, as far as we may see it."""
        if self._process.poll() is None:
            return False
        if with_group and not self._killed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, 0)
                return False
        return True

    def finish(self) -> None:
        """Note how it ended, and pass on what is in its pipes: processes it started may hold them open."""
        code = self._process.returncode
        self.run.code = 128 - code if code < 0 else code
        self.run.seconds = time.monotonic() - self._began
        with self._process:
            for pipe, lines in self.pipes.items():
                os.set_blocking(pipe, False)
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_PIPE // _CHUNK):
                        lines.feed(os.read(pipe, _CHUNK))
                lines.end()


class _Lines:
    """Copies a stream of a command to one of ours: whole lines, each prefixed with the label."""

    def __init__(self, label: bytes, out: BinaryIO) -> None:
        self._label = label
        self._out = out
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Write the complete lines; keep the rest."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) >= _LONGEST_LINE:
            lines.append(self._held)
            self._held = b""
        if lines:
            left = memoryview(b"".join(self._label + line + b"\n" for line in lines))
            while left:  # without a buffer, a signal may cut a write short
                left = left[self._out.write(left) :]
            self._out.flush()

    def end(self) -> None:
        """Write the rest, as a line."""
        if self._held:
            self.feed(b"\n")


@contextlib.contextmanager
def _signals(wanted: Sequence[int]) -> Iterator[int]:
    """A pipe to read the numbers of signals from. The `wanted` signals have no other effect meanwhile."""
    here, there = os.pipe()
    os.set_blocking(there, False)
    defaults_for_children()
    before = {number: signal.signal(number, _noticed) for number in (*wanted, signal.SIGCHLD)}
    woken = signal.set_wakeup_fd(there, warn_on_full_buffer=False)
    try:
        yield here
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(here)
        os.close(there)


def _noticed(_number: int, _frame: object) -> None:
    """Do nothing: the number is in the pipe."""
