"""The client: requests and responses over the controller's socket, and nothing else. It starts one if none runs.

Plain HTTP/1.0 over a socket, one request a connection: every command pays for these imports, and `http.client` alone is
a third of what `import typer` costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Self
from urllib.parse import quote, unquote

from agentless import __version__, paths
from agentless.client.connection import Connector
from agentless.client.http import (
    LAST_CHUNK,
    RequestFailed,
    Response,
    chunk,
    chunked_lines,
    failure,
    target,
    whole,
)
from agentless.client.stream import ProgramStream
from agentless.errors import AgentlessError, ControllerError, InventoryError, NoAnswer, Refused, UsageError
from agentless.formats.frames import END, NOTE, POSITION, Frame, read_frames
from agentless.model.tasks.task_id import first_try
from agentless.model.terminal import Size

WAIT_TURN = 30.0
"""Seconds of one turn of waiting for a task."""

AGAIN = 1.0
"""Seconds between two questions to a node that does not answer, beside those that the controller waits for it."""

TRIES = 6
"""Times in a row that a request is sent to a controller that dies: one death may cost two of them, the request under
way and the next one, which finds the new controller while it starts."""

EMPTY_TURN = 5.0
"""Seconds of one turn of waiting for a node: after each, a change can be shown."""

TARGET = 12_000
"""Bytes that the target of a request may have: the server takes 16 KiB for its whole head."""


class Breaker:
    """Cancels, from another thread, the requests of the context that has it as `BREAKER`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._broken = False
        self._open: socket.socket | None = None

    def watch(self, connection: socket.socket) -> None:
        """Cancel this connection's request too, once cancelled."""
        with self._lock:
            self._open = connection
            if self._broken:
                raise BrokenOff

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Make the requests in this block cancellable."""
        before = BREAKER.set(self)
        try:
            yield
        finally:
            BREAKER.reset(before)

    def break_off(self) -> None:
        """End the current request and refuse later ones. The controller goes on with what it has begun."""
        with self._lock:
            self._broken = True
            if self._open:
                with contextlib.suppress(OSError):  # it has ended by itself
                    self._open.shutdown(socket.SHUT_RDWR)


def is_over(task: dict[str, Any]) -> bool:
    """Whether a task has ended, and none of its outputs is still being copied."""
    is_coming = any(output["state"] == "coming" for output in task.get("outputs") or ())
    return task["ended_at"] is not None and not is_coming


class BrokenOff(Exception):
    """The request was cancelled by a Breaker."""


BREAKER: ContextVar[Breaker | None] = ContextVar("breaker", default=None)


class Client:
    """Requests to the controller of one state folder.

    `inventory` is the one that it must serve; None accepts any. `owner` is the user who asks; None is the controller's.
    """

    def __init__(self, state: Path, inventory: Path | None, owner: str | None = None) -> None:
        self._state = state
        self._inventory = inventory
        self._owner = owner
        self._controller = Connector(state, inventory)
        self.warnings: list[str] = []

    @classmethod
    def found(cls, inventory: Path | None, owner: str | None = None) -> Self:
        """The client for an inventory, given or found: in the environment, here, or in the config folder."""
        state = paths.state_dir()
        try:
            return cls(state, paths.find_inventory(inventory), owner)
        except InventoryError:
            served = cls(state, None, owner)  # a controller that runs knows its own
            if inventory is not None or not served.is_running():
                raise
            return served

    def another(self) -> Self:
        """Another client of the same controller, for another thread."""
        return type(self)(self._state, self._inventory, self._owner)

    def submit(self, request: dict[str, Any], path: str = "/v1/tasks") -> Any:
        """The answer to `POST /v1/tasks`, or to a request like it: what became of each task.

        Asked again when the controller dies meanwhile: the request has a name, so nothing is started twice.
        """
        named, failures = {"request": os.urandom(8).hex(), **request}, 0
        while True:
            try:
                return self.post(path, {**named, "repeated": failures > 0})
            except ControllerError:
                failures += 1
                if failures == TRIES:
                    raise
            except AgentlessError as error:
                if not failures:
                    raise
                raise ControllerError(
                    "the controller stopped during the submit and may have started tasks (check with: agentless ps): "
                    f"{error}"
                ) from None

    def get(self, path: str, **query: object) -> Any:
        """The JSON answer to a GET; raises RequestFailed or ControllerError."""
        return self._json("GET", path, query)

    def asked(self, path: str, **query: object) -> Any:
        """The JSON answer to a GET, repeated if the controller dies and another one starts."""
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
        """The JSON objects of an answer without an end, as they arrive."""
        with self._open("GET", path, query) as answer:
            for line in answer:
                yield json.loads(line)

    def progress(self, path: str, body: object = None, **query: object) -> Iterator[dict[str, Any]]:
        """The JSON objects in the answer to a POST that may take long, the last of them `done`; raises an `error`."""
        with self._open("POST", path, query, json.dumps({} if body is None else body)) as answer:
            yield from _reported(answer)

    def upload(self, path: str, data: Iterable[bytes], **query: object) -> Iterator[dict[str, Any]]:
        """The same for a POST with a body of any length."""
        way = ("Host: agentless", "Connection: close", "Content-Type: application/octet-stream")
        head = self._head(f"POST {target(path, query)} HTTP/1.1", *way, "Transfer-Encoding: chunked")
        with self._controller.connected() as connection:
            connection.sendall(head)
            # Refused in the middle of it: why is in the answer.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in data:
                    connection.sendall(chunk(piece))
                connection.sendall(LAST_CHUNK)
            with whole():
                yield from _reported(chunked_lines(self._answer(connection)))

    def frames(self, path: str, **query: object) -> Iterator[Frame]:
        """The frames of a log without its END, as (1, 2 or NOTE, bytes); raises the error in the END."""
        with self._open("GET", path, query) as answer:
            for kind, data in read_frames(answer):
                if kind == END:
                    if data:
                        raise failure(data)
                    return
                yield kind, data
        raise ControllerError(
            "the controller stopped before the end of the log; the task keeps running; run the command again"
        )

    def followed(
        self, path: str, *, patient: bool = False, at: Callable[[str], None] | None = None, **query: object
    ) -> Iterator[Frame]:
        """The frames of a log until its task has ended, like those of `frames`.

        If the node or the controller goes away and comes back, the log continues with the next byte. A NOTE says when
        it waits for a node. With `patient` it waits for the first answer, too. `at` is called with the position after
        the frames that come next.
        """
        position, begun, failures, noted = None, patient, 0, ""
        while True:
            held: list[Frame] = []
            try:
                for kind, data in self.frames(path, follow=True, resumable=True, position=position, **query):
                    if kind != POSITION:
                        held.append((kind, data))
                        continue
                    position, begun, failures, noted = data.decode() or position, True, 0, ""
                    if at and data:
                        at(data.decode())
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
                if str(error) != noted:
                    noted = str(error)
                    yield (
                        NOTE,
                        f"{error}; the task keeps running, and its output continues here when the node "
                        "answers".encode(),
                    )
                time.sleep(AGAIN)

    def wait(self, task: str, within: float | None = None) -> dict[str, Any]:
        """The task once it has ended, or as it is after `within` seconds.

        Asked in turns, so that it survives a controller that dies and comes back.
        """
        until = None if within is None else time.monotonic() + within
        while True:
            turn = WAIT_TURN if until is None else max(0.0, min(WAIT_TURN, until - time.monotonic()))
            found: dict[str, Any] = self.asked(f"/v1/tasks/{task}/wait", within=turn)
            if is_over(found) or (until is not None and time.monotonic() >= until):
                return found
            if not task.startswith(first_try(found["id"])):
                task = first_try(found["id"])  # a name may soon be another task's, and the number of a try changes

    def post_bytes(self, path: str, length: int, body: Iterator[bytes]) -> Any:
        """The JSON answer to a POST with a body of known length."""
        about = ("Content-Type: application/octet-stream", f"Content-Length: {length}")
        head = self._head(f"POST {target(path, {})} HTTP/1.0", *about)
        with self._controller.connected() as connection:
            if breaker := BREAKER.get():
                breaker.watch(connection)
            with whole():
                connection.sendall(head)
                for data in body:
                    connection.sendall(data)
                return json.loads(self._answer(connection).read())

    def until_empty(self, node: str) -> Iterator[dict[str, Any]]:
        """The drained node every few seconds, until it has no live task; raises Refused if it was resumed."""
        while True:
            found = self.asked(f"/v1/nodes/{node}/empty", within=EMPTY_TURN)
            if not found["drained"]:
                raise Refused(f"{node} was resumed in the meantime; new tasks may have started there")
            yield found
            if found["tasks"] == 0:
                return

    def events(self, *, follow: bool, **query: object) -> Iterator[Any]:
        """The events; with `follow` without an end, even if the controller dies and another one starts."""
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
    ) -> ProgramStream:
        """Begin a command (none: a shell) in the container of a running task; it ends when the stream is closed.

        With `of="envs"` in the build container of an env. Without a size the command has no terminal: its two output
        streams stay apart, and its input can end.
        """
        wanted = target(f"/v1/{of}/{task}/terminal", {"command": command, "size": size})
        if len(wanted) > TARGET:
            raise UsageError("the command is too long; put it into a script in the container and run the script")
        return self._stream(wanted, "the controller stopped and closed the terminal; the task keeps running")

    def transfer(self, place: str, **query: object) -> ProgramStream:
        """Begin the program at the other end of a copy (`controller/http/routes/files`); `place`: a node or a task."""
        wanted = target(f"/v1/files/{place}/transfer", query)
        if len(wanted) > TARGET:
            raise UsageError("the path is too long; copy a folder above it")
        return self._stream(wanted, "the controller stopped and interrupted the copy; run the command again")

    def _stream(self, wanted: str, gone: str) -> ProgramStream:
        # One that is read while it is answered has to say where each part of it ends.
        way = ("Host: agentless", "Connection: close", "Transfer-Encoding: chunked")
        head = self._head(f"POST {wanted} HTTP/1.1", *way)
        connection = self._controller.connected()
        try:
            with whole():
                connection.sendall(head)
                return ProgramStream(connection, self._answer(connection), gone)
        except BaseException:
            connection.close()
            raise

    @property
    def state_and_inventory(self) -> tuple[Path, Path | None]:
        """The state folder of the controller, and the inventory with which one is started."""
        return self._state, self._inventory

    def setting(self) -> dict[str, str | None]:
        """What another program needs to send requests to the same controller as the same user."""
        inventory = None if self._inventory is None else str(self._inventory)
        return {"state": str(self._state), "inventory": inventory, "owner": self._owner}

    def warned(self, text: str) -> None:
        """Keep a warning that came with an answer."""
        self.warnings.append(text)

    def is_running(self) -> bool:
        """Whether a controller answers on the socket."""
        return self._controller.is_running()

    # ------------------------------------------------------------------ inside

    def _json(self, method: str, path: str, query: dict[str, object], body: str = "") -> Any:
        with self._open(method, path, query, body) as answer:
            return json.loads(answer.read())

    @contextlib.contextmanager
    def _open(self, method: str, path: str, query: dict[str, object], body: str = "") -> Iterator[BinaryIO]:
        """Send a request; gives the body of its answer."""
        about = ("Content-Type: application/json", f"Content-Length: {len(body.encode())}")
        head = self._head(f"{method} {target(path, query)} HTTP/1.0", *about)
        with self._controller.connected() as connection:
            if breaker := BREAKER.get():
                breaker.watch(connection)
            with whole():
                connection.sendall(head + body.encode())
                yield self._answer(connection)

    def _head(self, *lines: str) -> bytes:
        """The head of a request, with the user and the inventory."""
        head = [*lines, f"X-Agentless-Version: {__version__}"]
        if self._inventory is not None:
            head.append(f"X-Agentless-Inventory: {quote(str(self._inventory))}")
        if self._owner is not None:
            head.append(f"X-Agentless-Owner: {self._owner}")
        return "\r\n".join([*head, "", ""]).encode()

    def _answer(self, connection: socket.socket) -> BinaryIO:
        """The body of the answer to the request that was sent; raises its error."""
        response = Response(connection)
        if warning := response.headers.get("x-agentless-warning"):
            self.warned(unquote(warning))
        if response.status >= 400:
            raise failure(response.body.read())
        return response.body


def _reported(answer: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in answer:
        report = json.loads(line)
        if report["kind"] == "error":
            raise failure(line)
        yield report
        if report["kind"] == "done":
            return
    raise ControllerError("the controller stopped before the operation finished; run the command again to continue")
