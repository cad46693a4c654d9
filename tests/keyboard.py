"""Somebody at a terminal: types, reads what is on the screen, and changes the size of the window."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests import ready

WITHIN = 30
"""Seconds that anything which has to happen may take."""
TAKE = 'exec <>"$0" >&0 2>&0; exec "$@"'
"""For `sh`: run a program on the terminal that is named first, as the leader of a session whose terminal it is."""


class Keyboard:
    """A command on a terminal of its own; our own is forked, see `ready`. `output` is all that it has shown so far."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | str = ".", size: tuple[int, int] = (80, 24)
    ) -> None:
        self._ours, self._theirs = os.openpty()
        self.resize(*size)
        self.output = b""
        self._news = threading.Condition()
        self.process: subprocess.Popen[bytes] | ready.Started
        if argv[0] == "agentless":
            self.process = ready.Started(*argv[1:], env=env, cwd=cwd, terminal=self._theirs)
        else:
            words = ["sh", "-c", TAKE, os.ttyname(self._theirs), *argv]
            self.process = subprocess.Popen(words, env=env, cwd=cwd, stdin=self._theirs, start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, text: bytes) -> None:
        while text:
            text = text[os.write(self._ours, text) :]

    def forget(self) -> None:
        """Drop what was typed and not read."""
        termios.tcflush(self._theirs, termios.TCIFLUSH)

    def resize(self, columns: int, rows: int) -> None:
        termios.tcsetwinsize(self._ours, (rows, columns))

    def sees(self, text: bytes, after: int = 0) -> int:
        """Wait until this is on the screen; gives the place behind it."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.output[after:], WITHIN), (text, self.output)
        return self.output.index(text, after) + len(text)

    def modes(self) -> list[object]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._theirs)

    def ended(self) -> int:
        """The exit code of the command, once it has one."""
        return self.process.wait(WITHIN)

    def shown(self) -> str:
        """All that an ended command has shown."""
        os.close(self._theirs)
        self._theirs = -1
        self._reader.join(WITHIN)
        return self.output.decode().replace("\r\n", "\n")

    def text(self) -> str:
        """Likewise, without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.shown())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self._theirs >= 0:
            os.close(self._theirs)
        self._reader.join(WITHIN)  # it would read what comes by the next one that has this number
        os.close(self._ours)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                with self._news:
                    self.output += data
                    self._news.notify_all()


@contextlib.contextmanager
def at_terminal(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path | str = ".", size: tuple[int, int] = (80, 24)
) -> Iterator[Keyboard]:
    keyboard = Keyboard(argv, env, cwd, size)
    try:
        yield keyboard
    finally:
        keyboard.close()
