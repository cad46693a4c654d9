"""A remote program on the terminal of this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from agentless.client.stream import ProgramStream
from agentless.model.terminal import Size

CHUNK = 64 * 1024
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_AS_BEFORE = b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"
"""What a program that was killed has left undone: no mouse, no marks around pastes, usual keys, a cursor, no colour."""
_ALTERNATE = b"\x1b[?1049"
"""Begins the words that go to the alternate screen (then `h`) and come back from it (`l`)."""


class Writer(Protocol):
    """A binary file."""

    def write(self, data: bytes, /) -> object:
        """Take in all of it."""

    def flush(self) -> object:
        """Show it."""


@dataclass(frozen=True)
class Window:
    """The local side: the file descriptor of the keys, the files for both output streams, and the size.

    SIGWINCH announces a new size. The end of the keys means that the window was closed. Without a `size` it is no
    terminal, and the end of the keys is the end of the input.
    """

    keys: int
    out: Writer
    err: Writer
    size: Callable[[], Size] | None


def standard() -> Window:
    """The standard streams of this process: a terminal if both input and output are one."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return Window(sys.stdin.fileno(), sys.stdout.buffer, sys.stderr.buffer, _size if on_terminal else None)


def _size() -> Size:
    """The size of this terminal; 80x24 if it does not know its own."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return Size(columns or 80, rows or 24)


@contextlib.contextmanager
def raw(fd: int) -> Iterator[None]:
    """Send every key to the program, Ctrl-C included; restores the terminal afterwards."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead is not lost
        yield
    finally:
        with contextlib.suppress(termios.error):  # its window was closed
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


class TerminalSession:
    """Passes on keys and output until the program ends, or a signal ends this process. Runs in the main thread.

    `ended_by` is that signal, 0 if the program has ended by itself.
    """

    def __init__(self, terminal: ProgramStream, window: Window) -> None:
        self.ended_by = 0
        self._terminal, self._window = terminal, window
        self._news, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        self._failure: Exception | None = None
        self._alternate, self._seen = False, b""

    def run(self) -> int:
        """The program's exit code, or 128 plus the signal that ended this process. Raises the error that ended it."""
        printing = threading.Thread(target=self._print, daemon=True)
        with self._signals():
            printing.start()
            self.ended_by = self._type()
        self._clean_up()
        if self.ended_by:
            return 128 + self.ended_by
        os.close(self._news)  # both ends: the thread has written its last
        os.close(self._tell)
        if self._failure:
            raise self._failure
        return 255 if self._terminal.exit_code is None else self._terminal.exit_code

    def _type(self) -> int:
        """Pass on keys until the output ends (0) or a signal comes (its number)."""
        watched = [self._window.keys, self._news]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if self._news in ready:
                for news in os.read(self._news, CHUNK):
                    if news in (0, *_ENDING):
                        return news
                    if news == signal.SIGWINCH and self._window.size:
                        size = self._window.size()
                        self._terminal.resize(size.columns, size.rows)
            elif data := os.read(self._window.keys, CHUNK):
                self._terminal.write(data)
            elif self._window.size:
                return signal.SIGHUP  # the window was closed
            else:
                self._terminal.write_eof()
                watched.remove(self._window.keys)

    def _print(self) -> None:
        try:
            while chunk := self._terminal.read_stream():
                stream, data = chunk
                out = self._window.err if stream == 2 else self._window.out
                out.write(data)
                out.flush()
                self._watch(data)
        except Exception as failure:  # noqa: BLE001 - it is the other thread's to raise
            self._failure = failure
        os.write(self._tell, b"\0")

    def _watch(self, data: bytes) -> None:
        """Remember whether the program is on the alternate screen."""
        seen = self._seen + data
        if (at := seen.rfind(_ALTERNATE, 0, -1)) >= 0:
            self._alternate = seen[at + len(_ALTERNATE)] == ord("h")
        self._seen = seen[-len(_ALTERNATE) :]

    def _clean_up(self) -> None:
        """Reset what the program may have left changed in this terminal."""
        if self._window.size:
            back = _ALTERNATE + b"l" if self._alternate else b""
            line = b"\r\n" if self.ended_by or self._failure else b""
            with contextlib.suppress(OSError):
                self._window.out.write(back + _AS_BEFORE + line)
                self._window.out.flush()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into bytes in a pipe: they interrupt nothing but a write to a node that reads no keys."""
        before = {number: signal.signal(number, lambda *_: self._terminal.close()) for number in _ENDING}
        if self._window.size:
            before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
        wakeup = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
