"""What the controller sends: applied to the state of the cluster, and shown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from textual.app import App
from textual.css.query import NoMatches

from agentless.client.client import Client
from agentless.errors import AgentlessError
from agentless.tui.data.cluster import STEP, TREND, ClusterState
from agentless.tui.data.feed import Feed

QUIET = 6.0
"""Seconds of silence until it is shown; the controller sends a line every 2 seconds."""
REMEMBERED = 500
"""The number of past events to ask for at the start."""


class Incoming:
    """Follows the controller; calls `show` in the app's thread, with the kinds of rows that changed."""

    def __init__(self, app: App[None], client: Client, cluster: ClusterState, show: Callable[[set[str]], None]) -> None:
        self._app, self._client, self._cluster, self._show = app, client, cluster, show
        self._rows = Feed(
            client,
            lambda client: client.lines("/v1/watch"),
            begun=partial(in_app, app, self.begin),
            line=partial(in_app, app, self.take),
            gone=partial(in_app, app, self.lose),
        )
        self._events = Feed(
            client,
            self._events_since,
            begun=lambda: None,
            line=partial(in_app, app, self.take_event),
            gone=lambda *_: None,
            starts=False,
        )
        self._seen = 0
        self._sampled_at = 0.0
        self._heard, self._silent = time.monotonic(), False

    def start(self, *, events: bool) -> None:
        self._rows.start()
        if events:
            self._events.start()

    def restart(self) -> None:
        """Start a controller again that was stopped."""
        self._rows.restart()

    def close(self) -> None:
        self._rows.close()
        self._events.close()

    # ------------------------------------------------------ in the app's thread

    def tick(self) -> None:
        """Note when the controller is silent for too long; called once a second."""
        quiet = time.monotonic() - self._heard
        if quiet > QUIET and (self._silent or not self._cluster.gone):
            self._cluster.gone, self._silent = f"No answer from the controller for {quiet:.0f} s", True

    def begin(self) -> None:
        """A connection begins: the controller sends all rows."""
        self._cluster.clear()
        self._cluster.gone, self._cluster.stopped = "", False
        self._app.run_worker(self._remember, thread=True)

    def take(self, line: dict[str, Any]) -> None:
        """Rows have changed."""
        self._heard = time.monotonic()
        if self._silent:
            self._cluster.gone, self._silent = "", False
        changed = self._cluster.apply(line)
        if self._cluster.now - self._sampled_at >= 1:
            self._sampled_at = self._cluster.now
            self._cluster.sampled()
        self._show(changed)

    def lose(self, why: str, stopped: bool) -> None:
        """The connection is lost; if it was `stopped`, the controller is not started again."""
        self._cluster.gone, self._cluster.stopped = why, stopped
        self._show({"controller"})

    def take_event(self, event: dict[str, Any]) -> None:
        self._seen = event["seq"]
        self._cluster.events.append(event)
        self._show({"events"})

    # ------------------------------------------------------------- in a thread

    def _events_since(self, client: Client) -> Iterable[dict[str, Any]]:
        query = {"after": self._seen} if self._seen else {"last": REMEMBERED}
        return client.lines("/v1/events", follow=True, **query)

    def _remember(self) -> None:
        """Ask for the samples of the last minutes."""
        with contextlib.suppress(AgentlessError):
            in_app(self._app, self._cluster.remember, self._client.get("/v1/history", since=TREND * STEP, points=TREND))


def in_app(app: App[None], work: Callable[..., object], *words: object) -> None:
    """Call `work` in the app's thread, from another one. An app that is about to end does nothing."""
    with contextlib.suppress(NoMatches, RuntimeError, CancelledError):
        if app.is_running:
            app.call_from_thread(work, *words)
