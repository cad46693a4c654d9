"""The client: requests and responses over the controller's socket, and nothing else. It starts one if none runs.

Plain HTTP/1.0 over a socket, one request a connection: every command pays for these imports, and `http.client` alone is
a third of what `import typer` costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Self
from urllib.parse import quote, unquote

from agentless import __version__, paths
from agentless.client.program import Terminal
from agentless.client.wire import Chunks, RequestFailed, Response, failure, target, whole
from agentless.errors import AgentlessError, ControllerError, InventoryError, NoAnswer, Refused, StateError, UsageError
from agentless.model.tasks.task_id import first_try
from agentless.model.terminal import POSITION, Size

_folder = Lock()
"""Held while the process stands in the state folder: there is one working directory for all threads."""

WAIT_TURN = 30.0
"""Seconds of one turn of waiting for a task."""

AGAIN = 1.0
"""Seconds between two questions to a node that does not answer, beside those that the controller waits for it."""

TRIES = 6
"""Times in a row that a request is sent to a controller that dies: one death may cost two of them, the request under
way and the next one, which finds the new controller while it starts."""

EMPTY_TURN = 5.0
"""Seconds of one turn of waiting for a node: after each, a change can be told."""

SOCKET_PATH = 103
"""Bytes that the path of a socket may have on every system; Linux takes 107."""

TARGET = 12_000
"""Bytes that the target of a request may have: the server takes 16 KiB for its whole head."""

START_WITHIN = 15.0
"""Seconds that a controller which is starting, or ending, may keep another one from starting."""


class Breaker:
    """Breaks off, from another thread, the requests of the context that has it as `BREAKER`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._broken = False
        self._open: socket.socket | None = None

    def watch(self, connection: socket.socket) -> None:
        """Break off this one, from now on."""
        with self._lock:
            self._open = connection
            if self._broken:
                raise BrokenOff

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Break off what is asked in here."""
        before = BREAKER.set(self)
        try:
            yield
        finally:
            BREAKER.reset(before)

    def break_off(self) -> None:
        """End the request under way, and refuse those that would follow. What was asked for goes on."""
        with self._lock:
            self._broken = True
            if self._open:
                with contextlib.suppress(OSError):  # it has ended by itself
                    self._open.shutdown(socket.SHUT_RDWR)


def coming(task: dict[str, Any]) -> bool:
    """Whether outputs of an ended task are on their way."""
    return any(output["state"] == "coming" for output in task.get("outputs") or ())


class BrokenOff(Exception):
    """Nobody waits for this request any more."""


BREAKER: ContextVar[Breaker | None] = ContextVar("breaker", default=None)


class Client:
    """The controller of one state folder. `inventory` is what it has to serve, None: whatever it serves.

    `owner` is who asks, None: the controller's own.
    """

    def __init__(self, state: Path, inventory: Path | None, owner: str | None = None) -> None:
        self._state = state
        self._inventory = inventory
        self._owner = owner
        self.warnings: list[str] = []

    @classmethod
    def found(cls, inventory: Path | None, owner: str | None = None) -> Self:
        """The client for the inventory that is named, or found: in the environment, here, in the config folder."""
        state = paths.state_dir()
        try:
            return cls(state, paths.find_inventory(inventory), owner)
        except InventoryError:
            served = cls(state, None, owner)  # a controller that runs knows its own
            if inventory is not None or not served.is_running():
                raise
            return served

    def another(self) -> Self:
        """One more client of the same controller, for another thread."""
        return type(self)(self._state, self._inventory, self._owner)

    def submit(self, request: dict[str, Any]) -> Any:
        """The answer to `POST /v1/tasks`: what became of each task.

        Asked again when the controller dies meanwhile: the request has a name, so nothing is started twice.
        """
        named, failures = {"request": os.urandom(8).hex(), **request}, 0
        while True:
            try:
                return self.post("/v1/tasks", {**named, "repeated": failures > 0})
            except ControllerError:
                failures += 1
                if failures == TRIES:
                    raise
            except AgentlessError as error:
                if not failures:
                    raise
                raise ControllerError(
                    f"the controller died in the submit, which may have started tasks: {error}"
                ) from None

    def get(self, path: str, **query: object) -> Any:
        """The JSON answer to a GET; raises RequestFailed or ControllerError."""
        return self._json("GET", path, query)

    def asked(self, path: str, **query: object) -> Any:
        """Likewise, asked again when the controller dies and comes back meanwhile."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(ControllerError):
                return self.get(path, **query)
        return self.get(path, **query)

    def post(self, path: str, body: object = None, **query: object) -> Any:
        """The JSON answer to a POST."""
        return self._json("POST", path, query, json.dumps({} if body is None else body))

    def delete(self, path: str, **query: object) -> Any:
        """The JSON answer to a DELETE."""
        return self._json("DELETE", path, query)

    def lines(self, path: str, **query: object) -> Iterator[Any]:
        """The JSON objects of an endless answer, as they arrive."""
        with self._open("GET", path, query) as answer:
            for line in answer:
                yield json.loads(line)

    def told(self, path: str, body: object = None, **query: object) -> Iterator[dict[str, Any]]:
        """The JSON objects in the answer to a POST that may take long, the last of them `done`; raises an `error`."""
        with self._open("POST", path, query, json.dumps({} if body is None else body)) as answer:
            yield from _told(answer)

    def sent(self, path: str, data: Iterable[bytes], **query: object) -> Iterator[dict[str, Any]]:
        """Likewise, for a POST whose body is this data, however much it is."""
        way = ("Host: agentless", "Connection: close", "Content-Type: application/octet-stream")
        head = self._head(f"POST {target(path, query)} HTTP/1.1", *way, "Transfer-Encoding: chunked")
        with self._connected() as connection:
            connection.sendall(head)
            # Refused in the middle of it: why is in the answer.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for chunk in data:
                    connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunk else b"")
                connection.sendall(b"0\r\n\r\n")
            with whole():
                yield from _told(Chunks(self._answer(connection, b"")))

    def frames(self, path: str, **query: object) -> Iterator[tuple[int, bytes]]:
        """The frames of a log but the last, as (1, 2 or 3, bytes); raises what that one says."""
        with self._open("GET", path, query) as answer:
            while len(head := answer.read(5)) == 5:
                size = int.from_bytes(head[1:], "big")
                data = answer.read(size)
                if len(data) < size:
                    break  # of a position half of one, and of an error none
                if head[0] == 0:
                    if data:
                        raise failure(data)
                    return
                yield head[0], data
        raise ControllerError("the controller went away before the end of the log; the task runs on: ask again")

    def followed(self, path: str, *, patient: bool = False, **query: object) -> Iterator[tuple[int, bytes]]:
        """The frames of a log until its task has ended, as those of `frames`.

        Where the node or the controller goes away, and comes back, it goes on with the next byte; that it waits for a
        node is a note (3). With `patient` it waits for the first answer as well.
        """
        position, begun, failures, told = None, patient, 0, ""
        while True:
            held: list[tuple[int, bytes]] = []
            try:
                for kind, data in self.frames(path, follow=True, resumable=True, position=position, **query):
                    if kind != POSITION:
                        held.append((kind, data))
                        continue
                    position, begun, failures, told = data.decode() or position, True, 0, ""
                    yield from held
                    held.clear()
                yield from held
                return
            except ControllerError:
                failures += 1
                if failures == TRIES or not begun:
                    raise
            except RequestFailed as error:
                if error.exit_code != NoAnswer.exit_code or not begun:
                    raise
                if str(error) != told:
                    told = str(error)
                    yield 3, f"{error}; the task runs on, and its output continues here when the node answers".encode()
                time.sleep(AGAIN)

    def wait(self, task: str, within: float | None = None) -> dict[str, Any]:
        """The task once it has ended, or as it is after `within` seconds.

        Asked in turns, so that it survives a controller that dies and comes back.
        """
        until = None if within is None else time.monotonic() + within
        while True:
            turn = WAIT_TURN if until is None else max(0.0, min(WAIT_TURN, until - time.monotonic()))
            found: dict[str, Any] = self.asked(f"/v1/tasks/{task}/wait", within=turn)
            over = found["ended_at"] is not None and not coming(found)
            if over or (until is not None and time.monotonic() >= until):
                return found
            if not task.startswith(first_try(found["id"])):
                task = first_try(found["id"])  # a name may soon be another task's, and the number of a try changes

    def send(self, path: str, length: int, body: Iterator[bytes]) -> Any:
        """The JSON answer to a POST of so many bytes."""
        about = ("Content-Type: application/octet-stream", f"Content-Length: {length}")
        head = self._head(f"POST {target(path, {})} HTTP/1.0", *about)
        with self._connected() as connection, whole():
            connection.sendall(head)
            for data in body:
                connection.sendall(data)
            return json.loads(self._answer(connection, b"").read())

    def until_empty(self, node: str) -> Iterator[dict[str, Any]]:
        """The drained node, turn by turn, until no task lives there any more; raises Refused when it was resumed."""
        while True:
            found = self.asked(f"/v1/nodes/{node}/empty", within=EMPTY_TURN)
            if not found["drained"]:
                raise Refused(f"{node} was resumed meanwhile: new tasks may have started there")
            yield found
            if found["tasks"] == 0:
                return

    def events(self, *, follow: bool, **query: object) -> Iterator[Any]:
        """What has happened; with `follow` without an end, also over a controller that dies and comes back."""
        failures = 0
        while True:
            try:
                for event in self.lines("/v1/events", follow=follow, **query):
                    query, failures = {"task": query.get("task"), "after": event["seq"]}, 0
                    yield event
            except ControllerError:
                failures += 1
                if failures == TRIES:
                    raise
            if not follow:
                return

    def terminal(
        self, task: str, command: Sequence[str] = (), size: Size | None = None, *, of: str = "tasks"
    ) -> Terminal:
        """Begin a command (none: a shell) in the container of a running task, and talk to it until it is closed.

        With `of="envs"` it is the build container of the env of that name.
        Without a size it has no terminal: its two streams stay apart, and its input can end.
        """
        wanted = target(f"/v1/{of}/{task}/terminal", {"command": command, "size": size})
        if len(wanted) > TARGET:
            raise UsageError("the command is too long; put it into a file in the container, and run that")
        return self._talk(wanted, "the controller went away, and the terminal with it; the task runs on")

    def transfer(self, place: str, **query: object) -> Terminal:
        """Begin the program at the other end of a copy (`controller/http/routes/files`); `place`: a node or a task."""
        wanted = target(f"/v1/files/{place}/transfer", query)
        if len(wanted) > TARGET:
            raise UsageError("the path is too long; go to a folder nearer to it first")
        return self._talk(wanted, "the controller went away, and the copy broke off; run it again")

    def _talk(self, wanted: str, gone: str) -> Terminal:
        # One that is read while it is answered has to say where each part of it ends.
        way = ("Host: agentless", "Connection: close", "Transfer-Encoding: chunked")
        head = self._head(f"POST {wanted} HTTP/1.1", *way)
        connection = self._connected()
        try:
            with whole():
                return Terminal(connection, self._answer(connection, head), gone)
        except BaseException:
            connection.close()
            raise

    def setting(self) -> dict[str, str | None]:
        """What another program needs to ask the same controller, in the name of the same owner."""
        inventory = None if self._inventory is None else str(self._inventory)
        return {"state": str(self._state), "inventory": inventory, "owner": self._owner}

    def warned(self, text: str) -> None:
        """Take down what the controller wants said along with an answer."""
        self.warnings.append(text)

    def is_running(self) -> bool:
        """Whether a controller answers on the socket."""
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    # ------------------------------------------------------------------ inside

    def _json(self, method: str, path: str, query: dict[str, object], body: str = "") -> Any:
        with self._open(method, path, query, body) as answer:
            return json.loads(answer.read())

    @contextlib.contextmanager
    def _open(self, method: str, path: str, query: dict[str, object], body: str = "") -> Iterator[BinaryIO]:
        """Send a request and read the head of its answer; gives its body."""
        about = ("Content-Type: application/json", f"Content-Length: {len(body.encode())}")
        head = self._head(f"{method} {target(path, query)} HTTP/1.0", *about)
        with self._connected() as connection:
            if breaker := BREAKER.get():
                breaker.watch(connection)
            with whole():
                yield self._answer(connection, head + body.encode())

    def _head(self, *lines: str) -> bytes:
        """The head of a request, with who asks and for what."""
        head = [*lines, f"X-Agentless-Version: {__version__}"]
        if self._inventory is not None:
            head.append(f"X-Agentless-Inventory: {quote(str(self._inventory))}")
        if self._owner is not None:
            head.append(f"X-Agentless-Owner: {self._owner}")
        return "\r\n".join([*head, "", ""]).encode()

    def _answer(self, connection: socket.socket, request: bytes) -> BinaryIO:
        """The body of the answer to a request; raises what it says when that is an error."""
        connection.sendall(request)
        response = Response(connection)
        if warning := response.headers.get("x-agentless-warning"):
            self.warned(unquote(warning))
        if response.status >= 400:
            raise failure(response.body.read())
        return response.body

    def _connect(self) -> socket.socket:
        """Connect by the socket's path, or from within the state folder where that path is too long."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.fsencode(self._state / "controller.sock")
        try:
            if len(path) <= SOCKET_PATH:
                connection.connect(path)
            else:
                self._connect_from_within(connection)
        except OSError:
            connection.close()
            raise
        return connection

    def _connect_from_within(self, connection: socket.socket) -> None:
        with _folder:
            back = os.open(".", os.O_RDONLY)
            try:
                os.chdir(self._state)
                connection.connect("controller.sock")
            finally:
                os.fchdir(back)
                os.close(back)

    def _connected(self) -> socket.socket:
        """A connection to the controller, which is started if none answers."""
        try:
            return self._connect()
        except (FileNotFoundError, ConnectionRefusedError):
            self._start()
        except OSError as error:
            raise StateError(f"{self._state} cannot be used: {error.strerror}") from None
        try:
            return self._connect()
        except OSError as error:
            raise ControllerError(f"the controller started but does not answer: {error}") from None

    def _start(self) -> None:
        """Start a controller in the background, as tmux starts its server, and wait until it answers."""
        deadline = time.monotonic() + START_WITHIN
        while problem := self._try_to_start():
            if problem.error != "ControllerError" or time.monotonic() > deadline:
                raise problem
            # Another one is starting, or ending: soon it answers, or makes room.
            time.sleep(0.1)
            if self.is_running():
                return

    def _try_to_start(self) -> RequestFailed | None:
        """None once a controller answers, else why it ended at its start."""
        if self._inventory is None:
            raise ControllerError("no controller runs and no inventory is found; write one with: agentless init")
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "agentless.controller", str(self._state), str(self._inventory), str(writer)]
        try:
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[writer],
                start_new_session=True,
                cwd="/",
            )
            os.close(writer)
            with os.fdopen(reader) as answer:
                said = answer.read()
        except OSError as error:
            raise ControllerError(f"the controller cannot be started: {error}") from None
        if said == "ready" or self.is_running():
            return None
        if said:
            return failure(said.encode())
        raise ControllerError(f"the controller ended at its start; {self._state}/controller.log says why")


def _told(answer: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in answer:
        told = json.loads(line)
        if told["kind"] == "error":
            raise failure(line)
        yield told
        if told["kind"] == "done":
            return
    raise ControllerError("the controller went away before it was done; do it once more, and it goes on from there")
