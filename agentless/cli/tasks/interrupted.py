"""What Ctrl-C leaves behind: it ends a command, never its task."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from agentless.cli.output import say
from agentless.client.client import Client
from agentless.client.words import WAITING
from agentless.errors import AgentlessError


@contextlib.contextmanager
def saying_what_stays(served: Client, *tasks: str) -> Iterator[None]:
    """On Ctrl-C, say whether the tasks keep running or stay in the queue, and what to type next."""
    try:
        yield
    except KeyboardInterrupt:
        if tasks:
            say("", *(_what_stays(served, task) for task in tasks), f"To stop: agentless stop {' '.join(tasks)}")
        raise


def _what_stays(served: Client, task: str) -> str:
    found: dict[str, Any] = {}
    with contextlib.suppress(AgentlessError):
        found = served.get(f"/v1/tasks/{task}")
    if found.get("state") in WAITING:
        return f"The task stays in the queue. See when it starts: agentless explain {task}"
    if found.get("ended_at") is not None:
        return f"The task has ended. See its output: agentless logs {task}"
    back = " Its output files are copied here when it ends." if found.get("outputs") else ""
    return f"The task keeps running.{back} Follow it: agentless logs -f {task}"
