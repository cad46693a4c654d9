"""Ports of this machine that belong to one test, also while nobody listens on them."""

from __future__ import annotations

import socket


def reserve() -> socket.socket:
    """Bind a free port of 127.0.0.1; it is taken by nobody else until this is closed.

    A server can listen on it nevertheless: Linux allows that to two sockets with SO_REUSEADDR.
    """
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder
