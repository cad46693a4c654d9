"""Sends uploaded files to a script on a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from agentless.controller.files.packing import packed
from agentless.controller.nodes.cluster_link import TaskLink
from agentless.controller.nodes.conversation import NoMark, until_mark
from agentless.errors import RuntimeFailed, Timeout
from agentless.model.command import Command
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node import with_node
from agentless.model.text import Excerpt
from agentless.model.units import format_size, thousands
from agentless.ports import Shell
from agentless.remote.worker import GREETING
from agentless.rules.files.container_tree import FileOwner, FileTree, bytes_of, files_of

BEGIN_WITHIN = 60.0
BEFORE_TASKS = 3.0
"""Seconds by which uploaded files are older than their upload."""
TELL_EVERY = 3.0
"""Seconds between two words about how far an upload is."""


async def send(
    link: TaskLink,
    script: Command,
    mark: str,
    tree: FileTree,
    owner: FileOwner,
    content: Callable[[str], Path],
    now: float,
    tell: Callable[[str], None],
) -> None:
    """Give files to a script that has said the mark. Raises RuntimeFailed with what the node said if it fails."""
    what = f"{thousands(files_of(tree), 'file')}, {format_size(bytes_of(tree))}"
    where = f"to {link.node.name}"
    tell(f"uploading {what} {where}")
    sent, reported_at = 0, asyncio.get_running_loop().time()
    async with link.session.dialogue(script) as shell:
        tail = Excerpt()
        if await _begun(shell, mark, link, tail):
            stream = packed(tree, owner, content, upload_time(now, link.observation))
            while data := await asyncio.to_thread(next, stream, b""):
                await shell.write(data if sent else b"\n" + data)
                sent += len(data)
                if (moment := asyncio.get_running_loop().time()) - reported_at > TELL_EVERY:
                    reported_at = moment
                    tell(f"uploading {what} {where}: {format_size(sent)} sent")
            await shell.write_eof()
        while chunk := await shell.read():
            tail.add(chunk[1])
        if await shell.wait() != 0:
            raise RuntimeFailed(with_node(link.node.name, link.runtime.complaint(str(tail))))
    tell(f"uploaded {what} {where}: {format_size(sent)} sent")


def upload_time(now: float, observation: Observation) -> int:
    """The time that uploaded files get: by the node's clock, and before anything that a task can write.

    `docker diff` passes over a changed file whose size and second are the same.
    """
    return int(now + (observation.engine.clock if observation.engine else 0.0) - BEFORE_TASKS)


async def _begun(shell: Shell, mark: str, link: TaskLink, tail: Excerpt) -> bool:
    """Wait for the mark; False when it never comes, with what was printed instead in `tail`."""
    flood = f"{link.node.name} sent more than {GREETING >> 20} MiB before it accepted the files; retry"
    try:
        async with asyncio.timeout(BEGIN_WITHIN):
            await until_mark(shell, mark, flood)
    except TimeoutError:
        raise Timeout(f"{link.node.name} did not begin to accept the files within {BEGIN_WITHIN:g} s") from None
    except NoMark as end:
        tail.add(end.out + end.err)
        return False
    return True
