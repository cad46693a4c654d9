"""Who is preempted for whom, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.tasks.task import Task


def named(victims: Iterable[str], known: Mapping[str, Task]) -> str:
    """Tasks with their owners: `task V of bob and task W of eve`."""
    words = [f"task {each} of {known[each].owner}" if each in known else f"task {each}" for each in victims]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
