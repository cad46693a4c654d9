"""The client: requests and responses over the controller's socket, and nothing else. It starts a controller if none runs.

Kept to the standard library, since every command of the face pays for these imports.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from agentless.errors import AgentlessError, ControllerError, StateError


class RequestFailed(AgentlessError):
    """The controller's own sentence, with its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class _Connection(http.client.HTTPConnection):
    """HTTP to the socket in a state folder, reached from within it: a socket's path has at most 107 bytes."""

    def __init__(self, state: Path) -> None:
        super().__init__("agentless")
        self._state = state

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        back = os.open(".", os.O_RDONLY)
        try:
            os.chdir(self._state)
            self.sock.connect("controller.sock")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.fchdir(back)
            os.close(back)


class Client:
    """The controller of one state folder. `inventory` is what it has to serve, None: whatever it serves."""

    def __init__(self, state: Path, inventory: Path | None) -> None:
        self._state = state
        self._inventory = inventory
        self.warnings: list[str] = []

    def get(self, path: str, **query: object) -> Any:
        """The JSON answer to a GET; raises RequestFailed or ControllerError."""
        return self._json("GET", path, query)

    def post(self, path: str, body: object = None, **query: object) -> Any:
        """The JSON answer to a POST."""
        return self._json("POST", path, query, json.dumps({} if body is None else body))

    def delete(self, path: str, **query: object) -> Any:
        """The JSON answer to a DELETE."""
        return self._json("DELETE", path, query)

    def lines(self, path: str, **query: object) -> Iterator[Any]:
        """The JSON objects of an endless answer, as they arrive."""
        with self._open("GET", path, query) as response:
            for line in response:
                yield json.loads(line)

    def frames(self, path: str, **query: object) -> Iterator[tuple[int, bytes]]:
        """The frames of a log (see `controller/api`) as (1 or 2, bytes); raises the error that ends it."""
        with self._open("GET", path, query) as response:
            while head := response.read(5):
                data = response.read(int.from_bytes(head[1:], "big"))
                if head[0] == 0:
                    problem = json.loads(data)
                    raise RequestFailed(problem["message"], problem["exit_code"])
                yield head[0], data

    def is_running(self) -> bool:
        """Whether a controller answers on the socket."""
        connection = _Connection(self._state)
        try:
            connection.connect()
        except OSError:
            return False
        connection.close()
        return True

    # ------------------------------------------------------------------ inside

    def _json(self, method: str, path: str, query: dict[str, object], body: str | None = None) -> Any:
        with self._open(method, path, query, body) as response:
            return json.loads(response.read())

    @contextlib.contextmanager
    def _open(
        self, method: str, path: str, query: dict[str, object], body: str | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        given = {key: _text(value) for key, value in query.items() if value is not None}
        target = quote(path) + (f"?{urlencode(given)}" if given else "")
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._inventory is not None:
            headers["X-Agentless-Inventory"] = quote(str(self._inventory))
        connection = self._connected()
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            if warning := response.getheader("X-Agentless-Warning"):
                self.warnings.append(unquote(warning))
            if response.status >= 400:
                raise _failure(response.read())
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise ControllerError(
                f"the controller went away during the request ({error}); "
                "what it had started runs on: look with agentless ps"
            ) from None
        finally:
            connection.close()

    def _connected(self) -> _Connection:
        connection = _Connection(self._state)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            self._start()
            try:
                connection.connect()
            except OSError as error:
                raise ControllerError(f"the controller started but does not answer: {error}") from None
        except OSError as error:
            raise StateError(f"{self._state} cannot be used: {error.strerror}") from None
        return connection

    def _start(self) -> None:
        """Start a controller in the background, as tmux starts its server, and wait until it answers."""
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
        if said != "ready" and not self.is_running():
            if said:
                raise _failure(said.encode())
            raise ControllerError(f"the controller ended at its start; {self._state}/controller.log says why")


def _failure(body: bytes) -> RequestFailed:
    try:
        problem = json.loads(body)
        return RequestFailed(problem["message"], problem["exit_code"])
    except (ValueError, KeyError, TypeError):
        return RequestFailed("the controller failed; its log (controller.log in the state folder) says why", 1)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
