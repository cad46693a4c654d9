"""The command line and the controller, imported once and forked for each that is started.

Nine tenths of a short command, and of a controller in a test, are Python's start. Each still is a process of its own,
with its words, environment, folder, streams and end. What a test says of the start itself (signals, closed streams, a
terminal, what is imported, what a shell sees) needs the program instead: it starts the controller as a program, too.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from agentless.client import connection

_program = connection._spawn

USED = (
    "agentless.controller.__main__",
    "agentless.remote.transports.asyncssh",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)
"""What a controller imports when it starts."""
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
            socket.send_fds(_server("commands"), [request], [*theirs, _server("controllers").fileno()])
        return fits
    finally:
        for fd in theirs:
            os.close(fd)


@contextlib.contextmanager
def typed(folder: Path) -> Iterator[None]:
    """Have an `agentless` in this folder, for a shell, that is started like that; it has the streams of the shell.

    It has no terminal of its own to be interrupted from, and nobody but itself to start a controller.
    """
    place = folder / "socket"
    program = folder / "agentless"
    program.write_text(f"#!{sys.executable} -SE\nSOCKET = {str(place)!r}\n{_TYPED}")
    program.chmod(0o755)
    with socket.create_server(str(place), family=socket.AF_UNIX) as listener:
        listener.settimeout(None)
        threading.Thread(target=_pass_on, args=(listener,), daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)


_TYPED = """
import os, sys
from _json import encode_basestring_ascii as quoted  # the rest of json is most of the time that this takes
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
words = ",".join(map(quoted, sys.argv[1:]))
env = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in os.environ.items())
request = f'{{"words": [{words}], "env": {{{env}}}, "cwd": {quoted(os.getcwd())}}}'.encode()
way = socket(AF_UNIX, SOCK_STREAM)
way.connect(SOCKET)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
way.sendmsg([len(request).to_bytes(8, "big")], [(SOL_SOCKET, SCM_RIGHTS, streams)])
while request:
    request = request[way.send(request):]
end = b""
while more := way.recv(100):
    end += more
code = os.waitstatus_to_exitcode(int(end.split()[1]))
os._exit(code if code >= 0 else 128 - code)
"""


def _pass_on(listener: socket.socket) -> None:
    """Ask for each command that is typed; who typed it is told its end."""
    with contextlib.suppress(OSError):
        while True:
            way, _ = listener.accept()
            size, streams, *_ = socket.recv_fds(way, 8, 3)
            request = way.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
            with way:
                controllers = _server("controllers").fileno()
                socket.send_fds(_server("commands"), [request], [*streams, way.fileno(), controllers])
            for stream in streams:
                os.close(stream)


def controller(state: Path, inventory: Path, writer: int, way: socket.socket | None = None) -> None:
    """Start a controller in this process's environment: in the place of `connection._spawn`.

    Where the environment has another word for Python, like a PYTHONPATH, it is the program.
    """
    if any(name.startswith("PYTHON") and value != PYTHONS.get(name) for name, value in os.environ.items()):
        _program(state, inventory, writer)
    else:
        request = {"words": [str(state), str(inventory)], "env": dict(os.environ), "cwd": "/"}
        socket.send_fds(way or _server("controllers"), [json.dumps(request).encode()], [writer])


def hasty(state: Path, inventory: Path, env: Mapping[str, str], writer: int, stdin: int) -> None:
    """Start a controller as `tests.fleet.hasty` has it. It says its PID before all else, and ends with this stdin."""
    request = {"words": [str(state), str(inventory)], "env": dict(env), "cwd": "/"}
    socket.send_fds(_server("controllers"), [json.dumps(request).encode()], [writer, stdin])


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
def _server(of: str) -> socket.socket:
    """The way to the process that forks these. It ends with this one, when the way does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.ready", of, str(theirs.fileno()), "." * ROOM],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "ROOM": "." * ROOM},
        )
    return ours


class _Server:
    """Forks for each request that comes by `way`, and says how commands end."""

    def __init__(self, way: socket.socket) -> None:
        self._way = way
        self._selector = selectors.PollSelector()
        self._selector.register(way, selectors.EVENT_READ)
        self._ends: dict[int, tuple[int, int | None]] = {}
        """By a descriptor of each process: its PID, and where its end is to be said."""

    def serve(self) -> None:
        """Until nobody is there any more who could ask."""
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._ends:
                    self._ended(key.fd)
                elif not self._begin(*socket.recv_fds(self._way, LONGEST, 5)[:2]):
                    return

    def _begin(self, request: bytes, fds: Sequence[int]) -> bool:
        if not request:
            return False
        if (pid := os.fork()) == 0:
            self._way.close()
            for process, (_, end) in self._ends.items():
                os.close(process)
                if end is not None:
                    os.close(end)
            {1: _be_controller, 2: _be_hasty, 5: _be_command}[len(fds)](json.loads(request), *fds)
        end = None
        if len(fds) == 5:
            end = os.dup(fds[3])
            with contextlib.suppress(BrokenPipeError):
                os.write(end, b"%d " % pid)
        for fd in fds:
            os.close(fd)
        process = os.pidfd_open(pid)
        self._ends[process] = pid, end
        self._selector.register(process, selectors.EVENT_READ)
        return True

    def _ended(self, process: int) -> None:
        pid, end = self._ends.pop(process)
        self._selector.unregister(process)
        os.close(process)
        status = os.waitpid(pid, 0)[1]
        if end is not None:
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                os.write(end, b"%d" % status)
            os.close(end)


def _be_command(request: Mapping[str, Any], given: int, out: int, err: int, end: int, controllers: int) -> NoReturn:
    """Be the command."""
    from agentless.__main__ import main

    os.close(end)
    os.set_inheritable(controllers, False)
    connection._spawn = functools.partial(controller, way=socket.socket(fileno=controllers))
    if request.get("leads"):
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
    _end(main())


def _be_hasty(request: Mapping[str, Any], writer: int, stdin: int) -> NoReturn:
    """Be a controller with less patience."""
    from tests.fleet import hasty

    os.write(writer, b"%d " % os.getpid())
    os.setsid()
    request["words"].append(str(writer))
    _be("tests.fleet.hasty", request, stdin, *(os.open(os.devnull, os.O_RDWR) for _ in range(2)))
    _end(hasty.run())


def _end(code: int) -> NoReturn:
    """End as Python does, without taking apart all that was imported: that took longer than a short life."""
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(code)


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


def _import(of: str) -> None:
    """All that these need."""
    if of == "controllers":
        from tests import templates, validators

        templates.compile_all()
        validators.make_all()
        for name in USED:
            importlib.import_module(name)
    else:
        import typer.main

        from agentless import cli, client
        from agentless.cli.app import make

        # What the options of a command are is half of what a short one does.
        typer.main.get_params_from_function = functools.cache(typer.main.get_params_from_function)
        typer.main.get_command(make([]))
        for package in cli, client:
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)


if __name__ == "__main__":
    _import(sys.argv[1])
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        _Server(socket.socket(fileno=int(sys.argv[2]))).serve()
