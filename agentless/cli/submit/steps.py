"""Shows the steps of a start, such as moving its env to the node, while somebody waits at a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from agentless.cli.progress import Progress, progress
from agentless.client.client import Breaker, BrokenOff, Client
from agentless.errors import AgentlessError

Concerns = Callable[[dict[str, Any]], bool]
"""Whether an event is about one of the awaited tasks."""
EARLIER = 1000
"""Maximum number of events that are read again because they came before the stream was open."""


@contextlib.contextmanager
def showing(served: Client, concerns: Concerns, since: float, words: str) -> Iterator[None]:
    """Show the steps of these tasks since then (Unix seconds), on a terminal only; `words` until there is one."""
    if not sys.stderr.isatty() or not served.is_running():
        yield
        return
    breaker = Breaker()
    with progress(words) as shown:
        arguments = (served.another(), breaker, concerns, since, words, shown)
        thread = threading.Thread(target=_show, args=arguments, daemon=True)
        thread.start()
        try:
            yield
        finally:
            breaker.break_off()
            thread.join()


def _show(served: Client, breaker: Breaker, concerns: Concerns, since: float, words: str, shown: Progress) -> None:
    began = False
    with contextlib.suppress(AgentlessError, BrokenOff), breaker.watching():
        for event in served.events(follow=True, last=EARLIER, since=since):
            if event["kind"] == "task" and concerns(event) and (began or event["event"] == "step"):
                shown.update((event["task"]["reason"] if event["event"] == "step" else None) or words)
                began = True
