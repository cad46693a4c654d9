"""A command feels as fast as typing ssh: it imports nothing of the controller, nor what only the controller needs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAVY = (
    "agentless.controller", "agentless.remote", "agentless.stores", "agentless.engines", "agentless.gpus",
    "agentless.demo", "asyncssh", "paramiko", "textual", "fastapi", "starlette", "uvicorn",
    "tinydb", "sqlite3", "jinja2", "pydantic", "asyncio", "yaml", "prometheus_client",
)  # fmt: skip
SCRIPT = """
import sys
from agentless.cli.app import run
code = run(sys.argv[1:])
print("modules:", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A stand-in for the controller: it answers every request with an empty list."""
    state = tmp_path / "state" / "agentless"
    state.mkdir(parents=True)
    (tmp_path / "inventory.yaml").write_text("version: 1\nnodes: {node1: {host: 127.0.0.1}}\n")
    back = Path.cwd()
    server = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(state)  # a socket's path has at most 107 bytes
        server.bind("controller.sock")
    finally:
        os.chdir(back)
    server.listen()
    answering = threading.Thread(target=_answer, args=(server,))
    answering.start()
    yield {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "AGENTLESS_INVENTORY": str(tmp_path / "inventory.yaml"),
    }
    server.shutdown(socket.SHUT_RDWR)
    answering.join()
    server.close()


def _answer(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as request:
            length = 0
            while line := request.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            request.read(length)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n[]")


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["ps"],
        ["ps", "--json"],
        ["gpus"],
        ["nodes"],
        ["usage", "--json"],
        ["submit", "--json", "node1::0", "--", "true"],
        ["span", "--", "true", "span:[a,b]"],
        ["submit", "no such target", "--", "true"],
    ],
    ids=" ".join,
)
def test_a_command_imports_nothing_that_only_the_controller_needs(
    environment: dict[str, str], words: list[str]
) -> None:
    modules = imported(environment, words, 2 if "no such target" in words else 0)
    assert [name for name in modules if name.startswith(HEAVY)] == []


@pytest.mark.parametrize("verb", ["ps", "gpus", "nodes"])
def test_a_look_imports_nothing_of_what_can_be_asked_for(environment: dict[str, str], verb: str) -> None:
    """Half the time of a look was that."""
    parts = {"agentless.model.tasks.task", "agentless.model.tasks.spec", "agentless.model.nodes.node", "secrets"}
    assert parts.intersection(imported(environment, [verb])) == set()


def imported(environment: dict[str, str], words: list[str], code: int = 0) -> list[str]:
    """What a command imports."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    modules = done.stderr.rpartition("modules: ")[2].split()
    assert "agentless.cli.app" in modules
    return modules
