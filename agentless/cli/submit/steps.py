"""Shows the steps of a start, such as bringing its env to the node, while somebody waits at a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.errors import AgentlessError
from agentless.model.text import printable

Concerns = Callable[[dict[str, Any]], bool]
"""Whether an event is about one of the awaited tasks."""
EARLIER = 1000
"""Maximum number of events that are read again because they came before the stream was open."""


@contextlib.contextmanager
def showing(served: Client, concerns: Concerns, since: float) -> Iterator[None]:
    """Show the steps of these tasks since then (Unix seconds) in a line that is overwritten, on a terminal only."""
    if not sys.stderr.isatty() or not served.is_running():
        yield
        return
    breaker = Breaker()
    thread = threading.Thread(target=_show, args=(served.another(), breaker, concerns, since), daemon=True)
    thread.start()
    try:
        yield
    finally:
        breaker.break_off()
        thread.join()


def _show(served: Client, breaker: Breaker, concerns: Concerns, since: float) -> None:
    shown = False
    with contextlib.suppress(AgentlessError, BrokenOff), breaker.watching():
        for event in served.events(follow=True, last=EARLIER, since=since):
            if event["kind"] == "task" and concerns(event) and (shown or event["event"] == "step"):
                step = event["task"]["reason"] if event["event"] == "step" else None
                _line(printable(step or ""))
                shown = step is not None
    if shown:
        _line("")


def _line(text: str) -> None:
    print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)  # noqa: T201
