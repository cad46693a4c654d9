"""Following the controller for the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue
from typing import Any

from agentless.client.client import Client
from agentless.errors import ControllerError
from agentless.tui.data.feed import Feed


def test_a_controller_that_dies_in_the_middle_of_a_line_is_lost_like_any_other(tmp_path):
    def stream(client: Client) -> Iterator[dict[str, Any]]:
        yield {"kind": "now"}
        raise ControllerError("the controller stopped during the request")

    told: Queue[str] = Queue()
    feed = Feed(
        Client(tmp_path, None), stream, begun=lambda: None, line=lambda _: None, gone=lambda why, _: told.put(why)
    )
    feed.start()
    try:
        assert told.get(timeout=10) == "Lost the connection to the controller (tasks keep running); reconnecting"
    finally:
        feed.close()
