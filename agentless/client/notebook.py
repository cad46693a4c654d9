"""Jupyter in a container: started, found and ended by a script there."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, field
from typing import Any, Self

from agentless import paths
from agentless.client.client import Client
from agentless.client.http import RequestFailed, Response
from agentless.client.ssh.forward import HOST
from agentless.errors import AgentlessError, Refused
from agentless.model.text import printable
from agentless.render import Renderer

LABEL = ("notebook", "jupyter")
"""The label of tasks that are notebooks."""
PORT = 8888
"""Where Jupyter listens in the container, unless that is taken."""
NO_PIP, NO_JUPYTER = 126, 127
"""Exit codes of the script: the image has no Jupyter, and in the first case no pip either."""
SCRIPT = "NOTEBOOK"
"""The variable with the script of a task, so that its command is short."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,512}")
_BASE = re.compile(r"/([A-Za-z0-9._~%@-]+/)*")
_MOST = 64 * 1024
_WITHIN = 30.0


@dataclass(frozen=True)
class Server:
    """A Jupyter server: its port in the container, its token, and the path in front of everything."""

    port: int
    token: str = field(repr=False)
    base: str = "/"

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read the file that Jupyter writes about itself; raises Refused."""
        try:
            found = json.loads(text)
            port, token, base = found["port"], found["token"], found.get("base_url", "/")
            if type(port) is int and 0 < port < 65536 and _TOKEN.fullmatch(token) and _BASE.fullmatch(base):
                return cls(port, token, base)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise Refused("Jupyter in the container says nothing usable of its port and token; see its log")

    def url(self, local: int) -> str:
        """Where it is on this machine."""
        return f"http://{HOST}:{local}{self.base}?token={self.token}"

    def greet(self, connection: socket.socket) -> None:
        """Ask it whether it takes the token; raises Refused."""
        head = f"GET {self.base}api/status HTTP/1.0\r\nHost: {HOST}\r\nAuthorization: token {self.token}\r\n\r\n"
        with connection:
            connection.settimeout(_WITHIN)
            try:
                connection.sendall(head.encode())
                status = Response(connection).status
            except (OSError, ValueError, IndexError):
                raise Refused(f"port {self.port} of the container does not speak HTTP; see its log") from None
        if status != 200:
            raise Refused(f"Jupyter does not accept its own token (HTTP {status}); use a newer Jupyter")


class Ended(AgentlessError):
    """The script in the container ended without a server."""

    def __init__(self, code: int | None, words: str) -> None:
        super().__init__(words or f"the script that looks for Jupyter ended with exit code {code}")
        self.code = code


class Jupyter:
    """Jupyter in the container of a running task."""

    def __init__(self, served: Client, task: str) -> None:
        self._served, self._task = served, task

    def start(self) -> Server:
        """The server that runs, else a new one, which stays; raises Ended."""
        return Server.parse(self._run("start"))

    def wait(self) -> Server:
        """The server, once there is one; raises Ended if the container ends before."""
        return Server.parse(self._run("wait"))

    def stop(self) -> None:
        """End the server, if one runs."""
        self._run("stop")

    def _run(self, word: str) -> bytes:
        streams = {1: b"", 2: b""}
        with self._served.terminal(self._task, ("sh", "-c", _script(word))) as terminal:
            terminal.write_eof()
            while chunk := terminal.read_stream():
                stream, data = chunk
                streams[stream] = (streams[stream] + data)[:_MOST]
            if terminal.exit_code != 0:
                raise Ended(terminal.exit_code, printable(streams[2].decode("utf-8", "replace").strip()))
        return streams[1]


def _script(word: str) -> str:
    """The script that does this in a container; see its template."""
    renderer = Renderer([paths.config_dir() / "templates", paths.template_dir()])
    return renderer.script("container-notebook.sh.j2", word=word)


def command() -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of a task that is a notebook, and its variables."""
    return ("sh", "-c", f'eval "${SCRIPT}"'), {SCRIPT: _script("run")}


def is_notebook(task: dict[str, Any]) -> bool:
    """Whether a task is one."""
    key, value = LABEL
    return bool(task["labels"].get(key) == value)


def find(served: Client, name: str) -> tuple[dict[str, Any], bool] | None:
    """The VPS or notebook of this name, and whether it is a VPS."""
    for path in (f"/v1/vps/{name}", f"/v1/tasks/{name}"):
        try:
            task = served.get(path)
        except RequestFailed as error:
            if error.error != "NotFound":
                raise
        else:
            is_vps = path.startswith("/v1/vps/")
            return (task, is_vps) if is_vps or is_notebook(task) else None
    return None
