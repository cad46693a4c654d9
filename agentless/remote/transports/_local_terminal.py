"""A pseudo-terminal of this machine with a `sh` on it."""

from __future__ import annotations

import asyncio
import os
import termios

from agentless.model.terminal import Size
from agentless.remote.transports._flow import Flow

CHUNK = 64 * 1024
_TAKE = 'exec <>"$0" >&0 2>&0; eval "$1"'
"""A terminal that a session leader opens becomes its controlling terminal, and is hung up when it ends."""


async def open_terminal(script: str, size: Size, alive: set[LocalTerminal]) -> LocalTerminal:
    """A terminal of this size with a `sh` that runs the script. It is in `alive` until that ends. Raises OSError."""
    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(ours, (size.rows, size.columns))
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", _TAKE, os.ttyname(theirs), script),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return LocalTerminal(ours, process, alive)


class LocalTerminal(Flow):
    """As `ports.Terminal`."""

    def __init__(self, ours: int, process: asyncio.subprocess.Process, alive: set[LocalTerminal]) -> None:
        super().__init__()
        self._fd = ours
        self._closed = False
        self._loop = asyncio.get_running_loop()
        alive.add(self)
        self._exit = asyncio.create_task(process.wait())
        self._exit.add_done_callback(lambda _: alive.discard(self))
        os.set_blocking(ours, False)
        self._loop.add_reader(ours, self._readable)

    def hold(self, paused: bool) -> None:
        """Stop reading the terminal, so that its programs wait."""
        if paused or self._over:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, self._readable)

    async def write(self, data: bytes) -> None:
        """As `Shell.write`."""
        while data and not self._over:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                self.pause_writing()
                self._loop.add_writer(self._fd, self._writable)
                await self.may_send()
            except OSError:  # it was hung up: the reader gets the end
                return

    async def write_eof(self) -> None:
        """A terminal has no end of input."""

    async def resize(self, size: Size) -> None:
        """As `Terminal.resize`."""
        if not self._over:
            termios.tcsetwinsize(self._fd, (size.rows, size.columns))

    async def wait(self) -> int:
        """As `Shell.wait`."""
        code = await asyncio.shield(self._exit)
        return code if code >= 0 else 128 - code

    async def close(self) -> None:
        """Hang up. What runs on the terminal ends because of that, in its own time."""
        self.finish()
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            os.close(self._fd)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # its last user has gone
            data = b""
        if data:
            self.feed(1, data)
        else:
            self._loop.remove_reader(self._fd)
            self.finish()

    def _writable(self) -> None:
        self._loop.remove_writer(self._fd)
        self.resume_writing()
