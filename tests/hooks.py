"""A server of webhooks on this machine, as Slack, ntfy and others are one, and servers that are anything but."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """What came."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Hook:
    """A server at `url`. It answers `status`, or what is `at` a path, once it may (`open`)."""

    url: str = ""
    status: int = 200
    at: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.requests]

    def events(self) -> list[tuple[str, str]]:
        """Event and state of each event of all documents."""
        return [(event["event"], event["task"]["state"]) for body in self.bodies for event in body["events"]]


@contextlib.contextmanager
def hook(context: ssl.SSLContext | None = None) -> Iterator[Hook]:
    """A server of 127.0.0.1, with TLS if there is a context."""
    found = Hook()
    found.open.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = found.at.get(self.path, (found.status, {}))
            found.requests.append(Request(self.path, dict(self.headers), json.loads(body)))
            found.open.wait(60)
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "2"}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.open.set()
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def server_of(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does this with each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            answer(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/s3cret"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
