"""Saves a whole log, byte by byte, to a file or for a browser."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO

from textual.screen import Screen

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.errors import AgentlessError
from agentless.model.text import printable
from agentless.model.units import format_size
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import Row
from agentless.tui.data.incoming import in_app


class Saving:
    """Reads logs in threads, and says on the screen what became of it."""

    def __init__(self, screen: Screen[Any], client: Client) -> None:
        self._screen, self._client = screen, client
        self._breaker = Breaker()

    def break_off(self) -> None:
        """Save no more."""
        self._breaker.break_off()

    def write(self, task: Row, file: BinaryIO, path: Path, only: int | None) -> None:
        """Save to a new file, which is removed again if that fails."""
        self._screen.run_worker(partial(self._write, task, file, path, only), thread=True)

    def hand_out(self, task: Row, name: str, only: int | None) -> None:
        """Let the browser save it."""
        self._screen.run_worker(partial(self._hand_out, task, name, only), thread=True)

    # ------------------------------------------------------------------ inside

    def _write(self, task: Row, file: BinaryIO, path: Path, only: int | None) -> None:
        size = self._fetch(task, file, only)
        with contextlib.suppress(OSError):  # what could not be written is said by now
            file.close()
        if size is None:
            path.unlink(missing_ok=True)
        else:
            self._screen.notify(f"Saved to {path}: {format_size(size)}", markup=False)

    def _hand_out(self, task: Row, name: str, only: int | None) -> None:
        file, app = TemporaryFile(), self._screen.app  # noqa: SIM115 - closed by who delivers it
        if self._fetch(task, file, only) is not None:
            in_app(app, partial(app.deliver_binary, file, save_filename=name))

    def _fetch(self, task: Row, into: IO[bytes], only: int | None) -> int | None:
        """Write the log in a thread; returns its bytes, or None after an error, which is shown."""
        size = 0
        try:
            with self._breaker.watching():
                for stream, data in self._client.frames(f"{path_of(task)}/logs", follow=False):
                    if stream in (only or 1, only or 2):
                        size += into.write(data)
            into.flush()
        except BrokenOff:
            problem = "closed before it was complete"
        except AgentlessError as error:
            problem = str(error)
        except OSError as error:
            problem = str(error.strerror)
        else:
            return size
        self._screen.notify(printable(f"The log was not saved: {problem}"), severity="error", markup=False)
        return None
