"""A task at the time of a request, and what can be done to it."""

from __future__ import annotations

import logging
import reprlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from agentless.api.lines import lines
from agentless.api.parse import parse
from agentless.api.shown import task_line, tasks_table
from agentless.api.verb import StreamVerb, Verb
from agentless.client.client import Client
from agentless.client.ssh.forwarded_port import ForwardedPort, forward_port
from agentless.errors import UsageError
from agentless.model.moment import parse_moment, parse_past
from agentless.model.tasks.task_id import first_try, numbered
from agentless.model.view import EventView, ExplainView, TaskView
from agentless.rules.submit.kinds import parse_seconds

_log = logging.getLogger("agentless")


@dataclass(frozen=True, slots=True, repr=False)
class Task(TaskView):
    """A task. Its fields are those at the time of the request; methods that act return it anew.

    A task that was retried is one task: methods act on its last try. A try that is known to be an earlier one
    (`retried_as`) means itself.

    Each method can also be awaited, as `await task.wait.aio()`. They raise what is in `agentless.errors`.
    """

    _client: Client = field(kw_only=True, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return task_line(self)

    def _repr_html_(self) -> str:
        """A table for a notebook."""
        return tasks_table([self])

    @Verb
    def refresh(self) -> Task:
        """The task as it is now."""
        return self._anew(self._client.get(self._path()))

    @Verb
    def wait(self, timeout: float | str | timedelta | None = None) -> Task:
        """The task once it has ended. Raises TimeoutError if it has not by then; it goes on.

        On several nodes, it has the end of the node that has failed, if one has, under its own id.
        """
        within = None if timeout is None else parse_seconds(timeout, "timeout")
        found = self._anew(self._client.wait(self._reference, within))
        if found.ended_at is None:
            raise TimeoutError(f"task {self.id} is {found.state} and has not ended within {timeout}; it keeps running")
        if found.gang is None or not found.gang.rank:
            return found
        one_try = found.id.removeprefix(first_try(found.id))
        first = self._anew(self._client.get(f"/v1/tasks/{found.gang.id}{one_try}"))
        return replace(first, state=found.state, exit_code=found.exit_code, reason=found.reason)

    @StreamVerb
    def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | str | datetime | timedelta | None = None,
        stdout: bool = False,
        stderr: bool = False,
        timestamps: bool = False,
        rank: int | None = None,
    ) -> Iterator[str]:
        """Its output, line by line, and with `follow` until it ends. `stdout`, `stderr`: only that stream.

        `since` is Unix seconds, a moment, or how long ago. Bytes that are not UTF-8 are replaced. Of a task on several
        nodes, it is the output of all, rank after rank, and each line begins with the rank: `1 | `. With `rank`, it is
        that of this one.
        """
        oldest = None if since is None else moment(since)
        read = self._client.followed if follow else self._client.frames
        streams = {1, 2} if stdout == stderr else {1} if stdout else {2}
        for mark, path in self._ranks(rank):
            frames = read(f"{path}/logs", tail=tail, since=oldest, timestamps=timestamps or None)
            yield from (mark + line for line in lines(frames, streams))

    @Verb
    def stop(self, grace: float | str | timedelta | None = None) -> Task:
        """End it gently: SIGTERM, the grace time, then SIGKILL. Returns it when it has ended."""
        body = {"grace": None if grace is None else parse_seconds(grace, "grace")}
        return self._anew(self._client.post(self._path("/stop"), body))

    @Verb
    def kill(self) -> Task:
        """End it at once: SIGKILL."""
        return self._anew(self._client.post(self._path("/kill")))

    @Verb
    def retry(self) -> Task:
        """Retry it after its end; returns the next try."""
        return self._anew(self._client.post(self._path("/retry")))

    @Verb
    def move(self, position: int | None = None, *, before: str | None = None, after: str | None = None) -> Task:
        """Move it in the queue: to a position from 1 on, or next to another pending task."""
        body = {"position": position, "before": before, "after": after}
        return self._anew(self._client.post(self._path("/move"), body))

    @Verb
    def pause(self) -> Task:
        """Freeze it; it keeps its GPUs and their memory."""
        return self._anew(self._client.post(self._path("/pause")))

    @Verb
    def resume(self) -> Task:
        """Continue a paused task."""
        return self._anew(self._client.post(self._path("/resume")))

    @Verb
    def remove(self, *, force: bool = False) -> Task:
        """Remove it with all its tries, containers and logs; returns it for the last time. `force` kills it first."""
        return self._anew(self._client.delete(self._path(), force=force))

    @Verb
    def explain(self) -> ExplainView:
        """Why it does not start, and what would help."""
        return parse(ExplainView, self._client.get(self._path("/explain")))

    @Verb
    def events(self) -> list[EventView]:
        """What happened to it, and why."""
        return [parse(EventView, each) for each in self._client.get(self._path("/events"))]

    @Verb
    def ssh_config(self) -> str:
        """The configuration by which OpenSSH knows it, by id and name; in a file for `ssh -F FILE NAME.agentless`."""
        from agentless.client.ssh import options  # noqa: PLC0415 - it needs more than all others

        return options.config(*self._client.state_and_inventory, options.host_names(self._reference, self.name))

    @Verb
    def forward(self, port: int, local: int | None = None) -> ForwardedPort:
        """Forward a port of this machine to one of its ports, until the result is closed; use it with `with`.

        `local`: that port of this machine; None: the same number, or any free port if that is taken. Raises Refused if
        `local` is taken. Connections that fail are reported to Python's log.
        """
        return forward_port(self._client, self._reference, port, local, lambda words: _log.warning("%s", words))

    def _anew(self, found: Any) -> Task:
        """The same as it is `found` now."""
        return parse(type(self), found, _client=self._client)

    @property
    def _reference(self) -> str:
        """The id of this try if it is known to have been retried, else that of the task, for its last try."""
        return numbered(self.id) if self.retried_as else first_try(self.id)

    def _ranks(self, rank: int | None) -> list[tuple[str, str]]:
        """The path of each member of its gang, or of this one, with what its lines begin with; else its own."""
        gang = self.gang
        if gang is None and rank is not None:
            raise UsageError(f"task {self.id} runs on one node; omit rank")
        if gang is None or (gang.rank and rank is None):
            return [("", self._path())]
        if rank is not None and not 0 <= rank < gang.size:
            raise UsageError(f"rank {rank}: task {self.id} has ranks 0 to {gang.size - 1}")
        one_try = self._reference.removeprefix(first_try(self.id))
        paths = [f"/v1/tasks/{member}{one_try}" for member in gang.members]
        return [("", paths[rank])] if rank is not None else [(f"{at} | ", path) for at, path in enumerate(paths)]

    def _path(self, rest: str = "") -> str:
        return f"/v1/tasks/{self._reference}{rest}"


def task(client: Client, found: Any) -> Task:
    """The task that is `found` as JSON."""
    return parse(Task, found, _client=client)


def future_moment(value: float | str | datetime | timedelta, now: float) -> float:
    """Unix seconds of a moment, or of how long it is from now; of a number, that number."""
    match value:
        case timedelta():
            return now + value.total_seconds()
        case str():
            return parse_moment(value, now)
    return _absolute(value)


def moment(value: float | str | datetime | timedelta) -> float:
    """Unix seconds of a moment, or of how long ago it was; of a number, that number."""
    match value:
        case timedelta():
            return time.time() - value.total_seconds()
        case str():
            return parse_past(value, time.time())
    return _absolute(value)


_NEVER = 1e15
"""Seconds beyond any date; infinity and NaN are refused as well."""


def _absolute(value: float | datetime) -> float:
    match value:
        case datetime():
            return value.timestamp()
        case int() | float() if abs(value) < _NEVER:
            return value
    raise UsageError(f"a time must be a number, a string, a datetime or a timedelta, not {reprlib.repr(value)}")
