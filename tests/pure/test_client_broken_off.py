"""Requests that another thread breaks off."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from agentless.client.client import Breaker, Client
from agentless.errors import ControllerError


def test_an_upload_that_is_broken_off_sends_nothing_more(tmp_path):
    client, breaker, (here, there) = Client(tmp_path, None), Breaker(), socket.socketpair()
    client._controller = SimpleNamespace(connected=lambda: here)

    def body() -> Iterator[bytes]:
        yield b"first"
        breaker.break_off()
        yield b"second"
        raise AssertionError("it went on")

    with there, breaker.watching(), pytest.raises(ControllerError):
        client.post_bytes("/v1/contents", 100, body())
