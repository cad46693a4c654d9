"""Copies the log of an ended task from its node."""

from __future__ import annotations

from collections.abc import Callable

from agentless.controller.nodes.cluster_link import TaskLink
from agentless.errors import RuntimeFailed
from agentless.model.command import Command
from agentless.model.containers.log_query import LogQuery
from agentless.model.tasks.task import Task
from agentless.model.text import Excerpt
from agentless.rules.tasks.retention import cut_note, split_tail
from agentless.stores.files.logs import LogWriter

_NUMBER = 100
"""Characters of a number, with the blanks before it."""
_COUNT = ("wc", "-c")
"""The program that prints how long a stream is, in bytes."""


async def copy_log(link: TaskLink, task: Task, log: LogWriter, cap: int) -> None:
    """Write the log of a task, of which at most `cap` bytes are kept: the beginning and the end."""
    await _copy_beginning(link, task, log)
    if log.full:
        await _copy_end(link, task, log, cap)


async def _copy_beginning(link: TaskLink, task: Task, log: LogWriter) -> None:
    tail, runtime = Excerpt(), link.runtime_of(task)
    reading = runtime.reading(LogQuery())
    async with link.stream(runtime.logs(task.container_ref, LogQuery()), own=True) as stream:
        async for fd, data in stream:
            for stream_number, part in reading(fd, data):
                log.add(stream_number, part)
            if log.full:
                return
            if fd == 2:
                tail.add(data)
    if stream.exit_code != 0:
        raise RuntimeFailed(runtime.complaint(str(tail)))


async def _copy_end(link: TaskLink, task: Task, log: LogWriter, cap: int) -> None:
    """The end of a log that is longer than what is kept: counted and cut on the node, to spare the link."""
    counts = {1: b"", 2: b""}

    def count(fd: int, data: bytes) -> None:
        counts[fd] += data
        if len(counts[fd]) > _NUMBER:
            raise RuntimeFailed("invalid length of its log")

    await _run(link, link.runtime_of(task).filtered_logs(task.container_ref, _COUNT, _COUNT), count)
    left = {fd: int(counts[fd]) - log.head[fd] for fd in counts}
    end = split_tail(left, log.tail_bytes)
    log.cut(cut_note({fd: left[fd] - end[fd] for fd in left}, cap))
    missing = dict(end)

    def put(fd: int, data: bytes) -> None:
        missing[fd] -= len(data)
        if missing[fd] < 0:
            raise RuntimeFailed("received more of its log than requested")
        log.put(fd, data)

    ends = (("tail", "-c", str(end[fd])) for fd in (1, 2))
    await _run(link, link.runtime_of(task).filtered_logs(task.container_ref, *ends), put)
    if any(missing.values()):
        raise RuntimeFailed("its log changed while agentless read it")


async def _run(link: TaskLink, command: Command, take: Callable[[int, bytes], None]) -> None:
    async with link.stream(command, own=True) as stream:
        async for fd, data in stream:
            take(fd, data)
    if stream.exit_code != 0:
        raise RuntimeFailed("its log was cut off while agentless read it")
