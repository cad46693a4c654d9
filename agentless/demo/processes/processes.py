"""Child processes, each the leader of a session of its own, that end with everything they started.

The kernel's pidfd tells of an end without a thread per child, which asyncio's own subprocesses need: a simulation has
thousands. A leader is waited for only after its session was swept, since until then its PID, and with it the session's
number, cannot become another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

SWEEP_AFTER = 0.1
"""Seconds from an end to the sweep of its session, so that many ends share one look through /proc."""

PIPE = subprocess.PIPE
NULL = subprocess.DEVNULL


class Child:
    """One process. `status` is its exit code, or minus the signal that ended it, None while it runs."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        streams: int,
        stdin: int,
        on_exit: Callable[[int], None],
        bury: Callable[[Child], None],
    ) -> None:
        # Every descriptor of ours is closed on exec already; looking for them would cost the more the more nodes.
        self._popen = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=stdin, stdout=streams, stderr=streams, start_new_session=True, close_fds=False
        )
        self.pid = self._popen.pid
        # Each is there if PIPE was asked for it.
        self.stdin = cast("IO[bytes]", self._popen.stdin)
        self.stdout = cast("IO[bytes]", self._popen.stdout)
        self.stderr = cast("IO[bytes]", self._popen.stderr)
        self.status: int | None = None
        self._on_exit, self._bury, self._ended = on_exit, bury, False
        self._pidfd = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def signal_group(self, number: int) -> None:
        """Signal the process and all of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self) -> None:
        """Kill its group now, and the rest of its session in a moment. A second time does nothing."""
        if not self._ended:
            self._ended = True
            self.signal_group(signal.SIGKILL)
            self._bury(self)

    def wait(self) -> None:
        """Forget its PID; it must have ended."""
        self._popen.wait()

    def _exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        info = cast("os.waitid_result", os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT))
        os.close(self._pidfd)
        self.status = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        self._on_exit(self.status)


class Children:
    """All child processes of one simulation."""

    def __init__(self) -> None:
        self._living: set[Child] = set()
        self._buried: set[Child] = set()
        self._sweep_at: asyncio.TimerHandle | None = None

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        on_exit: Callable[[int], None],
        streams: int = PIPE,
        stdin: int = NULL,
    ) -> Child:
        """Start a process; `on_exit` gets its status. Raises OSError when it cannot be started."""
        child = Child(argv, env, cwd, streams, stdin, on_exit, self._bury)
        self._living.add(child)
        return child

    async def close(self) -> None:
        """End them all, and wait until nothing of them is left, 10 s at most: a kernel may keep hold of a process."""
        for child in list(self._living):
            child.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                while self._buried:
                    await asyncio.sleep(SWEEP_AFTER / 10)
                    self._sweep()

    def _bury(self, child: Child) -> None:
        self._living.discard(child)
        self._buried.add(child)
        self._sweep_later()

    def _sweep_later(self) -> None:
        if self._sweep_at is None:
            self._sweep_at = asyncio.get_running_loop().call_later(SWEEP_AFTER, self._sweep)

    def _sweep(self) -> None:
        """Kill what has left its leader's group (as `timeout` does), and wait for the leaders that were alone."""
        if self._sweep_at:
            self._sweep_at.cancel()
            self._sweep_at = None
        leaders = {child.pid: child for child in self._buried}
        crowded = set()
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            with contextlib.suppress(ProcessLookupError):
                session = os.getsid(pid)
                if session in leaders and pid != session and _alive(pid):
                    os.kill(pid, signal.SIGKILL)
                    crowded.add(session)
        for pid, child in leaders.items():
            if pid not in crowded and child.status is not None:
                child.wait()
                self._buried.discard(child)
        if self._buried:
            self._sweep_later()


def _alive(pid: int) -> bool:
    """Whether it still does anything: what has ended may wait for its parent for long."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False
