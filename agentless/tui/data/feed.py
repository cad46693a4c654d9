"""Follows the controller in a thread, also after it was restarted."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.errors import AgentlessError, ControllerError

AGAIN = 0.5
"""Seconds between two attempts to reach the controller, at first; later up to `RARELY`."""
RARELY = 10.0


class _Stopped(Exception):
    """The controller was asked to stop."""


class Feed:
    """Gives a stream of the controller to functions, which are called in its own thread.

    `stream` opens it; `begun` is called before the first line of each connection, `line` with each line, and `gone`
    when there is no connection: with a sentence, and whether it stays so until `restart`.

    A controller that has died is started again, as by any command, if this feed `starts` it; for one that was
    stopped the feed waits.
    """

    def __init__(
        self,
        client: Client,
        stream: Callable[[Client], Any],
        begun: Callable[[], None],
        line: Callable[[dict[str, Any]], None],
        gone: Callable[[str, bool], None],
        *,
        starts: bool = True,
    ) -> None:
        self._client, self._stream, self._starts = client, stream, starts
        self._begun, self._line, self._gone = begun, line, gone
        self._breaker, self._closed, self._wanted = Breaker(), Event(), Event()
        self._pause = AGAIN
        self._thread = Thread(target=self._follow, daemon=True, name="feed")

    def start(self) -> None:
        self._thread.start()

    def restart(self) -> None:
        """Start a controller again that was stopped."""
        self._wanted.set()

    def close(self) -> None:
        """Close the connection; the thread ends soon."""
        self._closed.set()
        self._wanted.set()
        self._breaker.break_off()

    def _follow(self) -> None:
        with self._breaker.watching():
            while not self._closed.is_set():
                try:
                    self._read()
                except BrokenOff:
                    return
                except _Stopped:
                    self._wanted.clear()
                    self._gone("The controller was stopped (tasks keep running)", True)
                    self._wait_for_another()
                except AgentlessError as error:
                    if not self._closed.is_set():
                        self._gone(str(error), False)
                    self._closed.wait(self._pause)
                    self._pause = min(2 * self._pause, RARELY)

    def _read(self) -> None:
        """Follow until the stream ends; raises _Stopped or ControllerError then."""
        if not (self._starts or self._client.is_running()):
            raise ControllerError("No controller is running")
        first = True
        try:
            for line in self._stream(self._client):
                if line.get("leaving"):
                    raise _Stopped
                if first:
                    self._pause = AGAIN
                    self._begun()
                    first = False
                self._line(line)
        except ControllerError:  # it died in the middle of a line
            if first:
                raise
        raise ControllerError("Lost the connection to the controller (tasks keep running); reconnecting")

    def _wait_for_another(self) -> None:
        while self._client.is_running() and not self._closed.wait(0.05):
            pass  # until it has ended
        while not self._closed.is_set() and not self._wanted.is_set() and not self._client.is_running():
            self._wanted.wait(AGAIN)
