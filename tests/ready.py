"""The command line and the controller, imported once and forked for each that is started.

Nine tenths of a short command, and of a controller in a test, are Python's start. Each still is a process of its own,
with its words, environment, folder, streams and end. What a test says of the start itself (signals, closed streams, a
terminal, what is imported, what a shell sees) needs the program instead: it starts the controller as a program, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NoReturn, Self, get_args
from unittest.mock import MagicMock

from agentless.client import connection

_program = connection._spawn

USED = (
    "agentless.controller.__main__",
    "agentless.remote.transports.asyncssh",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)
"""What a controller imports when it starts, or a command."""
LONGEST = 100_000
"""Bytes of a request that the kernel takes in one piece, with room to spare."""
PYTHONS = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
"""What Python was told at its start."""
ROOM = 8192
"""Bytes of command line, and of environment, that /proc can show of what was forked, beside those of who forks."""


def agentless(
    *words: str | bytes,
    env: Mapping[str, str] = os.environ,
    cwd: Path | str = ".",
    stdin: str = "",
    timeout: float = 90,
) -> subprocess.CompletedProcess[str]:
    """Run `agentless WORDS` as `subprocess.run` does, until it and its output have ended. Line ends stay."""
    given = os.memfd_create("stdin")
    os.write(given, stdin.encode())
    os.lseek(given, 0, os.SEEK_SET)
    pipes = [os.pipe() for _ in ("stdout", "stderr", "how it ended")]
    if not _ask(words, env, cwd, [given, *(writer for _, writer in pipes)]):
        for reader, _ in pipes:
            os.close(reader)
        argv = [sys.executable, "-m", "agentless", *words]
        return subprocess.run(
            argv, env=env, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
    out, err, end = _read([reader for reader, _ in pipes], timeout)
    pid, _, status = end.partition(b" ")
    if not status:
        os.kill(int(pid), signal.SIGKILL)
        raise subprocess.TimeoutExpired(["agentless", *words], timeout, out, err)
    code = os.waitstatus_to_exitcode(int(status))
    return subprocess.CompletedProcess(["agentless", *words], code, out.decode(), err.decode())


class Started:
    """`agentless WORDS` that goes on, to be used as its `subprocess.Popen`; it leads the session of `terminal`."""

    def __init__(self, *words: str, env: Mapping[str, str], cwd: Path | str = ".", terminal: int | None = None) -> None:
        self.args, self.returncode = ["agentless", *words], None
        self._end, told = os.pipe()
        if terminal is None:
            (out, theirs_out), (err, theirs_err) = os.pipe(), os.pipe()
            self.stdout, self.stderr = open(out), open(err)  # noqa: SIM115 - as long as this
            streams = [os.open(os.devnull, os.O_RDWR), theirs_out, theirs_err]
        else:
            streams = [os.dup(terminal) for _ in range(3)]
        if not _ask(words, env, cwd, [*streams, told], terminal is not None):
            raise ValueError("too long a command")
        pid, _, self._status = os.read(self._end, 100).partition(b" ")
        self.pid = int(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has one."""
        while self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            if more := os.read(self._end, 100):
                self._status += more
            else:
                os.close(self._end)
                self.returncode = os.waitstatus_to_exitcode(int(self._status))
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still prints until its end. It is killed if that does not come in time."""
        late = threading.Timer(timeout or threading.TIMEOUT_MAX, self.kill)
        late.daemon = True
        late.start()
        with ThreadPoolExecutor(2) as both:
            out, err = both.map(_rest, (self.stdout, self.stderr))
        if late.finished.is_set():
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        late.cancel()
        self.wait(timeout)
        return out, err

    def send_signal(self, number: int) -> None:
        """Nothing, if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _rest(stream: IO[str]) -> str:
    """What still comes, nothing if it is closed, as it is then."""
    if stream.closed:
        return ""
    with stream:
        return stream.read()


def _ask(
    words: Sequence[str | bytes], env: Mapping[str, str], cwd: Path | str, theirs: list[int], leads: bool = False
) -> bool:
    """Have a command started with these streams, which are closed here; False if its words are too many for that."""
    wanted = {"words": [*map(os.fsdecode, words)], "env": dict(env), "cwd": os.path.abspath(cwd), "leads": leads}
    request = json.dumps(wanted).encode()
    try:
        if fits := len(request) <= LONGEST:
            socket.send_fds(_server(), [request], [*theirs, _server().fileno()])
        return fits
    finally:
        for fd in theirs:
            os.close(fd)


def controller(state: Path, inventory: Path, writer: int, way: socket.socket | None = None) -> None:
    """Start a controller in this process's environment: in the place of `connection._spawn`.

    Where the environment has another word for Python, like a PYTHONPATH, it is the program.
    """
    if any(name.startswith("PYTHON") and value != PYTHONS.get(name) for name, value in os.environ.items()):
        _program(state, inventory, writer)
    else:
        request = {"words": [str(state), str(inventory)], "env": dict(os.environ), "cwd": "/"}
        socket.send_fds(way or _server(), [json.dumps(request).encode()], [writer])


def _read(pipes: Sequence[int], timeout: float) -> list[bytes]:
    """All that comes by these pipes, or what has come by then."""
    deadline, data = time.monotonic() + timeout, dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if not (more := os.read(key.fd, 65536)):
                    selector.unregister(key.fd)
                data[key.fd] += more
    for pipe in pipes:
        os.close(pipe)
    return [*data.values()]


@functools.cache
def _server() -> socket.socket:
    """The way to the process that forks. It ends with this one, when the way does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.ready", str(theirs.fileno()), "." * ROOM],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "ROOM": "." * ROOM},
        )
    return ours


def _serve(way: socket.socket) -> None:
    """Fork for each request that comes, and say of each command its PID and how it ended."""
    ends: dict[int, int | None] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _tell(ends))
    while True:
        request, fds, *_ = socket.recv_fds(way, LONGEST, 5)
        if not request:
            return
        if (pid := os.fork()) == 0:
            way.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in filter(None, ends.values()):
                os.close(end)
            (_be_controller if len(fds) == 1 else _be_command)(json.loads(request), *fds)
        end = fds.pop(3) if len(fds) > 1 else None
        for fd in fds:
            os.close(fd)
        if end:
            _say(end, pid, b" ")
        ends[pid] = end
        _tell(ends)  # it may have ended before anybody knew whose it is


def _tell(ends: dict[int, int | None]) -> None:
    """Say of those that have ended how they did. A signal may begin this again meanwhile."""
    for pid in [*ends]:
        with contextlib.suppress(ChildProcessError):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended and (end := ends.pop(pid)):
                _say(end, status)
                os.close(end)


def _say(end: int, number: int, more: bytes = b"") -> None:
    """A number, to somebody who may not wait for it any more."""
    with contextlib.suppress(BrokenPipeError):
        os.write(end, b"%d%b" % (number, more))


def _be_command(request: Mapping[str, Any], given: int, out: int, err: int, end: int, server: int) -> NoReturn:
    """Be the command."""
    from agentless.__main__ import main

    os.close(end)
    os.set_inheritable(server, False)
    connection._spawn = functools.partial(controller, way=socket.socket(fileno=server))
    if request["leads"]:
        os.setsid()
        fcntl.ioctl(given, termios.TIOCSCTTY, 0)
    _be("agentless", request, given, out, err)
    main()


def _be_controller(request: Mapping[str, Any], writer: int) -> NoReturn:
    """Be a controller, as `python -m agentless.controller` is."""
    from agentless.controller.__main__ import main

    os.setsid()
    request["words"].append(str(writer))
    _be("agentless.controller", request, *(os.open(os.devnull, os.O_RDWR) for _ in range(3)))
    sys.exit(main())


def _be(name: str, request: Mapping[str, Any], *streams: int) -> None:
    """Have the words, the environment, the folder and the streams of who was asked for."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = [name, *request["words"]]
    _show([sys.executable, "-m", *sys.argv])


def _show(command: Sequence[str]) -> None:
    """Let /proc/PID say so, by which tests find who belongs to them: the kernel shows what is where its start was."""
    *arguments, start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49])
    variables = [b"%b=%b" % pair for pair in sorted(os.environb.items())]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for (begin, over), texts in (arguments, map(os.fsencode, command)), ((start, end), variables):
            size = over - begin
            memory.seek(begin)
            memory.write(b"\0".join(texts)[: size - 1].ljust(size, b"\0"))


def _know_commands() -> None:
    """What the options of a command are is half of what a short one does."""
    import typer.main

    from agentless.cli.app import make

    typer.main.get_params_from_function = functools.cache(typer.main.get_params_from_function)
    typer.main.get_command(make([]))


def _know_requests() -> None:
    """How values of the API are read and written is half of what a controller does at its start."""
    from fastapi._compat import v2

    from agentless.controller.http import api

    make, made = v2.TypeAdapter, {}

    def known(kind: Any, *, config: Any = None) -> Any:
        key = get_args(kind)[0], repr(kind), repr(config)
        if key not in made:
            made[key] = make(kind, config=config)
        return made[key]

    v2.TypeAdapter = known  # type: ignore[misc, assignment]
    api.make(MagicMock())


if __name__ == "__main__":
    from tests import templates

    _know_commands()
    _know_requests()
    templates.compile_all()
    for name in USED:
        importlib.import_module(name)
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        _serve(socket.socket(fileno=int(sys.argv[1])))
