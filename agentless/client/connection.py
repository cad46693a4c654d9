"""Connections to the controller, which is started if none runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock

from agentless.client.http import RequestFailed, failure
from agentless.errors import ControllerError, StateError
from agentless.paths import HTTP_SOCKET

_folder = Lock()
"""Held while the state folder is the working directory, of which there is one for all threads."""
SOCKET_PATH = 103
"""Bytes that the path of a socket may have on every system; Linux takes 107."""
START_WITHIN = 15.0
"""Seconds to wait for another controller that is starting or ending."""


class Connector:
    """Connects to a socket of the controller of one state folder. `inventory` is for a controller that it starts."""

    def __init__(self, state: Path, inventory: Path | None, name: str = HTTP_SOCKET) -> None:
        self._state, self._inventory, self._name = state, inventory, name

    def is_running(self) -> bool:
        """Whether a controller answers on the socket."""
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def connect(self) -> socket.socket:
        """Connect by the path of the socket, or from the state folder if that path is too long."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.fsencode(self._state / self._name)
        try:
            if len(path) <= SOCKET_PATH:
                connection.connect(path)
            else:
                self._connect_from_within(connection)
        except OSError:
            connection.close()
            raise
        return connection

    def connected(self) -> socket.socket:
        """A connection to the controller, which is started if none answers."""
        try:
            return self.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            self._start()
        except OSError as error:
            raise StateError(f"cannot use {self._state}: {error.strerror}") from None
        try:
            return self.connect()
        except OSError as error:
            log = f"{self._state}/controller.log"
            raise ControllerError(f"the controller started but does not answer: {error}; see {log}") from None

    def _connect_from_within(self, connection: socket.socket) -> None:
        with _folder:
            back = os.open(".", os.O_RDONLY)
            try:
                os.chdir(self._state)
                connection.connect(self._name)
            finally:
                os.fchdir(back)
                os.close(back)

    def _start(self) -> None:
        """Start a controller in the background, like tmux its server, and wait until it answers."""
        deadline = time.monotonic() + START_WITHIN
        while problem := self._try_to_start():
            if problem.error != "ControllerError" or time.monotonic() > deadline:
                raise problem
            # Another one is starting or ending.
            time.sleep(0.1)
            if self.is_running():
                return

    def _try_to_start(self) -> RequestFailed | None:
        """None once a controller answers, else the error it ended with."""
        if self._inventory is None:
            raise ControllerError("no controller is running and no inventory exists; create one with: agentless init")
        reader, writer = os.pipe()
        try:
            _spawn(self._state, self._inventory, writer)
            os.close(writer)
            with os.fdopen(reader) as answer:
                said = answer.read()
        except OSError as error:
            raise ControllerError(f"cannot start the controller: {error}") from None
        if said == "ready" or self.is_running():
            return None
        if said:
            return failure(said.encode())
        raise ControllerError(f"the controller stopped while starting; see {self._state}/controller.log")


def _spawn(state: Path, inventory: Path, writer: int) -> None:
    """Start the process of a controller, which says by `writer` that it is ready, or what is wrong."""
    subprocess.Popen(
        [sys.executable, "-m", "agentless.controller", str(state), str(inventory), str(writer)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[writer],
        start_new_session=True,
        cwd="/",
    )
