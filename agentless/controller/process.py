"""The controller process: one per state folder, serving a Unix socket until it is no longer needed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from agentless.controller.app import Controller
from agentless.controller.clock import SystemClock
from agentless.controller.http import api
from agentless.controller.http.server import Server
from agentless.controller.ownership import identity
from agentless.controller.periodic import PeriodicJob, keep_doing
from agentless.controller.traffic import Counting
from agentless.errors import ControllerError, StateError
from agentless.paths import HTTP_SOCKET, SSH_SOCKET
from agentless.remote.concurrency import cancel
from agentless.signals import defaults_for_children
from agentless.stores import private

COLLECT_AFTER = 50_000
"""New objects after which Python looks for garbage in circles. Its own 700 would have it look through everything in the
middle of each look at a long queue, and there is hardly such garbage here."""
TURN = 0.001
"""Seconds for which a thread that computes may hold up the event loop, five times less than Python's own."""
OPEN_FILES = 16_384
"""Files that the controller may have open, where the system lets it."""


def run(state: Path, inventory: Path, *, ready: Callable[[], None], for_ever: bool) -> None:
    """Run the controller until it is told to leave; raises ControllerError if one is running, or StateError.

    `ready` is called when requests are answered; `for_ever`: a service manager keeps it, so it never leaves by itself.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = filelock.FileLock(state / "lock", mode=0o600)
        lock.acquire(blocking=False)
        private.tighten(state)
    except filelock.Timeout:
        raise ControllerError(
            f"a controller is already running for {state}; to see it, run: agentless controller status"
        ) from None
    except OSError as error:
        raise StateError(f"cannot use the state folder {state}: {error.strerror}") from None
    _open_many_files()
    gc.set_threshold(COLLECT_AFTER)
    sys.setswitchinterval(TURN)
    with lock:
        controller = Controller(state, inventory, SystemClock())
        with _listening(state, HTTP_SOCKET) as http, _listening(state, SSH_SOCKET) as ssh:
            asyncio.run(_serve(controller, http, ssh, ready, for_ever=for_ever))


def _open_many_files() -> None:
    """Each follower, session and connection is an open file, and many systems allow 256 or 1024 unless asked for more.

    At the limit nobody would be answered before somebody leaves.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may have yet another limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


@contextlib.contextmanager
def _listening(state: Path, name: str) -> Iterator[socket.socket]:
    """A socket in the state folder, which is removed in the end unless it is another controller's by then.

    So it is when somebody has removed the folder, and has started the next controller.
    """
    with _listen(state, name) as listener:
        ours = identity(state / name)
        try:
            yield listener
        finally:
            if identity(state / name) == ours:
                (state / name).unlink(missing_ok=True)


def _listen(state: Path, name: str) -> socket.socket:
    """A 0600 socket. Bound by its short name from within the folder, since a socket's path has at most 107 bytes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    back = os.open(".", os.O_RDONLY)
    mask = os.umask(0o177)
    try:
        os.chdir(state)
        Path(name).unlink(missing_ok=True)  # the lock is ours: whoever made it is dead
        listener.bind(name)
        listener.listen(256)
    finally:
        os.umask(mask)
        os.fchdir(back)
        os.close(back)
    return listener


async def _serve(
    controller: Controller, http: socket.socket, ssh: socket.socket, ready: Callable[[], None], *, for_ever: bool
) -> None:
    server, lifetime = Server(Counting(api.make(controller), controller.traffic)), controller.lifetime
    lifetime.begin(server.ask_to_leave)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lifetime.leave_now)
    defaults_for_children()
    await controller.start()
    jobs = controller.jobs if for_ever else [*controller.jobs, PeriodicJob("leaving", lifetime.leave_if_idle)]
    working = asyncio.create_task(keep_doing(jobs)), asyncio.create_task(controller.ssh.serve(ssh))
    ready()
    try:
        await server.serve(sockets=[http])
    finally:
        await cancel(*working)
        await controller.close()
