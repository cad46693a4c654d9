"""The ProxyCommand of the user's ssh: `python -IS proxy.py STATE INVENTORY HOST`.

It asks the controller for a connection with a container. ssh itself wants the connection by `ProxyUseFdpass`, and then
this process is out of the way. Other clients, such as paramiko, have the bytes passed through.

It is a program of its own that imports next to nothing: ssh waits for it.
"""

import array
import json
import os
import selectors
import socket
import stat
import sys

SUFFIX = ".agentless"
CHUNK = 256 * 1024
FAILED = 255
SOCKET_PATH = 103
"""Bytes that the path of a socket may have on every system."""
WITHIN = 60.0
"""Seconds for the controller's answer; it may have to reach the node first."""


def main() -> int:
    """Connect standard input and output with the container."""
    state, inventory, host = sys.argv[1:4]
    connection = reach(state, inventory, host.removesuffix(SUFFIX))
    if stat.S_ISSOCK(os.fstat(1).st_mode):
        with socket.socket(fileno=1) as ssh:
            ssh.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
        return 0
    _pass_through(connection)
    return 0


def reach(state: str, inventory: str, host: str, port: int | None = None) -> socket.socket:
    """A connection with a container, or with a port in it; raises ConnectionError with the reason."""
    connection = _connected(state, inventory)
    greet(connection, host, port)
    return connection


def greet(connection: socket.socket, host: str, port: int | None = None) -> None:
    """Have the controller lead a connection to a container, or to a port in it; raises ConnectionError."""
    connection.settimeout(WITHIN)
    ask(connection, host, port)
    answer = b""
    while not answer.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            break
        answer += byte
    check(answer)
    connection.settimeout(None)


def ask(connection: socket.socket, host: str, port: int | None = None) -> None:
    """Ask the controller for that; its answer is a line."""
    greeting = {"host": host, "port": port, "owner": os.environ.get("AGENTLESS_OWNER")}
    connection.sendall(json.dumps(greeting).encode() + b"\n")


def check(answer: bytes) -> None:
    """Raise ConnectionError with the reason, if the answer has one."""
    if not answer.startswith(b"+"):
        raise ConnectionError(answer[1:].decode(errors="replace").strip() or "the controller closed the connection")


def _connected(state: str, inventory: str) -> socket.socket:
    """A connection to the controller, which is started if none answers."""
    try:
        return _connect(state)
    except (FileNotFoundError, ConnectionRefusedError):
        from pathlib import Path  # noqa: PLC0415 - a controller runs, nearly always

        sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

        from agentless.client.connection import Connector  # noqa: PLC0415

        Connector(Path(state), Path(inventory) if inventory else None).connected().close()
        return _connect(state)


def _connect(state: str) -> socket.socket:
    """By its path, or from within the folder: the path of a socket has at most 107 bytes."""
    path = os.path.join(state, "ssh.sock")
    if len(os.fsencode(path)) > SOCKET_PATH:
        os.chdir(state)
        path = "ssh.sock"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _pass_through(connection: socket.socket) -> None:
    """Copy both directions until the controller has sent everything."""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    data = os.read(0, CHUNK)
                    if data:
                        connection.sendall(data)
                    else:
                        selector.unregister(0)
                        connection.shutdown(socket.SHUT_WR)
                else:
                    data = connection.recv(CHUNK)
                    if not data:
                        return
                    while data:
                        data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        code = main()
    except Exception as error:  # noqa: BLE001 - whatever it is, ssh shows this line
        sys.stderr.write(f"agentless: {error}\n")
        code = FAILED
    sys.stderr.flush()
    os._exit(code)
