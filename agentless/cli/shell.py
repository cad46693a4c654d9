"""`agentless shell`: a terminal in the container of a task."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator

import typer

from agentless.cli.command import WithCommand, command_of
from agentless.cli.common import TaskArgument, client
from agentless.model.terminal import Size
from agentless.terminal import Terminal

CHUNK = 64 * 1024
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_AS_BEFORE = b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m"
"""What a program that was broken off has left undone: no mouse, no marks around what is pasted, a cursor, no colour."""
_ALTERNATE = b"\x1b[?1049"
"""Begins the words that go to the alternate screen (then `h`) and come back from it (`l`)."""


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(cls=WithCommand)(shell)


def shell(context: typer.Context, task: TaskArgument) -> int:
    """Open a shell in a running task's container, or run the command after --.

    On a terminal if this is one, else with its streams apart, like ssh HOST COMMAND. Its exit code is the command's.
    """
    served = client(context)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with served.terminal(task, command_of(context), _size() if on_terminal else None) as terminal:
        if not on_terminal:
            return _Talk(terminal, sys.stdin.fileno()).run()
        with _raw(sys.stdin.fileno()):
            return _Talk(terminal, sys.stdin.fileno(), resizing=True).run()


def _size() -> Size:
    """Of this terminal; one that does not know its own is taken for the usual one."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return Size(columns or 80, rows or 24)


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Every key goes to the program, Ctrl-C included; afterwards the terminal is as it was."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead is not lost
        yield
    finally:
        with contextlib.suppress(termios.error):  # its window was closed
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Talk:
    """Keys one way, output the other, until the program has ended or somebody ends this one."""

    def __init__(self, terminal: Terminal, keys: int, *, resizing: bool = False) -> None:
        self._terminal, self._keys, self._resizing = terminal, keys, resizing
        self._news, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        self._failure: Exception | None = None
        self._alternate = False

    def run(self) -> int:
        """The program's exit code, or 128 and the signal that ended this one; raises what broke it off."""
        printing = threading.Thread(target=self._print, daemon=True)
        with self._signals():
            printing.start()
            ended_by = self._type()
        if ended_by:
            self._clean_up()
            return 128 + ended_by
        if self._failure:
            self._clean_up()
            raise self._failure
        return 255 if self._terminal.exit_code is None else self._terminal.exit_code

    def _type(self) -> int:
        """Pass on what is typed until the output has ended (0) or a signal to end has come (its number)."""
        watched = [self._keys, self._news]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if self._news in ready:
                for news in os.read(self._news, CHUNK):
                    if news in (0, *_ENDING):
                        return news
                    if news == signal.SIGWINCH:
                        size = _size()
                        self._terminal.resize(size.columns, size.rows)
            elif data := os.read(self._keys, CHUNK):
                self._terminal.write(data)
            elif self._resizing:
                return signal.SIGHUP  # the window was closed
            else:
                self._terminal.write_eof()
                watched.remove(self._keys)

    def _print(self) -> None:
        try:
            while chunk := self._terminal.read_stream():
                stream, data = chunk
                out = (sys.stderr if stream == 2 else sys.stdout).buffer
                out.write(data)
                out.flush()
                self._watch(data)
        except Exception as failure:  # noqa: BLE001 - it is the other thread's to raise
            self._failure = failure
        os.write(self._tell, b"\0")

    def _watch(self, data: bytes) -> None:
        """Remember whether the program is on the alternate screen."""
        if (at := data.rfind(_ALTERNATE)) >= 0:
            self._alternate = data[at + len(_ALTERNATE) :][:1] == b"h"

    def _clean_up(self) -> None:
        """Undo what a program that was broken off has done to this terminal."""
        if self._resizing:
            with contextlib.suppress(OSError):
                sys.stdout.buffer.write((_ALTERNATE + b"l" if self._alternate else b"") + _AS_BEFORE + b"\r\n")
                sys.stdout.buffer.flush()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals are bytes in a pipe, so that nothing is interrupted in the middle, but a node that takes no keys."""
        before = {number: signal.signal(number, lambda *_: self._terminal.close()) for number in _ENDING}
        if self._resizing:
            before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
        wakeup = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
