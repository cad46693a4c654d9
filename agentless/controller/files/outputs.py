"""Fetches the outputs of ended tasks from their containers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from agentless.controller.files.expected_outputs import REMOVED, Arriving, ExpectedOutputs
from agentless.controller.guarded import guarded_item
from agentless.controller.in_thread import in_thread
from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.state.ledger import Ledger
from agentless.errors import AgentlessError, Refused, RuntimeFailed, StateError
from agentless.formats.tar import CHUNK, Fed
from agentless.model.command import Command
from agentless.model.files.file_spec import UNFINISHED, Output, Upload
from agentless.model.files.posix_path import within
from agentless.model.files.upload_limits import MAX_BYTES, MOST_ARCHIVED
from agentless.model.nodes.node import with_node
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import next_try
from agentless.model.text import Excerpt
from agentless.remote.streams import Stream
from agentless.rules.files.changed_outputs import changed_paths
from agentless.rules.tasks.retention import LARGE
from agentless.stores.files.arrivals import Placed, arrive
from agentless.stores.files.output_archive import TOO_LARGE, Arrival, Unpacking, Unusable, ZerosAhead
from agentless.stores.files.outputs import Brought
from agentless.stores.files.snapshots import SnapshotStore

_WORTH = 1 << 18
"""Bytes that are handed to a thread at once."""
_GZIP = b"\x1f\x8b"
STALL = 300.0
"""Seconds without a byte after which a copy out of a container is given up, to be tried again."""


Check = Callable[[int], None]
"""Looks at how many bytes have come; raises what ends it."""


class PutOff(Exception):
    """The outputs of a task are large, and have to wait until it is the turn of large ones."""


class Outputs:
    """Fetches the `expected` outputs. `large` are the tasks with large ones.

    What goes below the folder `artifacts` is bounded: it is handed on like an upload.
    """

    def __init__(self, expected: ExpectedOutputs, snapshots: SnapshotStore, artifacts: Path, ledger: Ledger) -> None:
        self.expected = expected
        self.large: set[str] = set()
        self._store = expected.store
        self._snapshots = snapshots
        self._artifacts = artifacts
        self._ledger = ledger
        self._tasks = ledger.tasks

    def settle_lost(self) -> None:
        """Settle the outputs of tasks that never started, or whose container is gone."""
        self.expected.problems = {task: words for task, words in self.expected.problems.items() if task in self._store}
        self.large = {task for task in self.large if task in self._store}
        for first in self._store.pending():
            if first not in self._tasks.live:
                with guarded_item(f"task {first}: marking outputs as lost"):
                    self._settle_lost(first)

    async def bring(self, link: TaskLink, task: Task, may_be_large: Callable[[], bool]) -> None:
        """Fetch all outputs of an ended task, and put them in their places. Raises what went wrong.

        Once they are known to be large `may_be_large` is asked; if they may not, PutOff is raised.
        """
        wanted = self._store.wanted(task.id)
        if wanted is None:
            return
        self.expected.arriving[task.id] = Arriving(link.node.name)
        try:
            brought = [await self._one(link, task, output, wanted.uploads, may_be_large) for output in wanted.outputs]
        except PutOff:
            raise
        except AgentlessError as error:
            self._failed(task, str(error))
            raise
        except Exception as error:
            self.expected.problems[task.id] = f"unexpected error ({type(error).__name__})"
            raise
        finally:
            del self.expected.arriving[task.id]
        self.expected.problems.pop(task.id, None)
        if not self._tasks.knows(task.id):  # removed meanwhile
            self._store.remove(task.id)
            return
        self.expected.settle(task, brought)
        said = [_said(output, one) for output, one in zip(wanted.outputs, brought, strict=True)]
        self._ledger.publish(task, "brought", "; ".join(said))

    # ------------------------------------------------------------------ inside

    def _failed(self, task: Task, words: str) -> None:
        if words != self.expected.problems.get(task.id):
            self.expected.problems[task.id] = words
            self._ledger.publish(task, "outputs-wait", words)

    def _settle_lost(self, first: str) -> None:
        task = self._tasks.history.get(first)
        if task is None:
            if not self._tasks.knows(next_try(first)):
                self._store.remove(first)
        elif (lost := self.expected.lost(task)) is not None:
            wanted = self._store.wanted(first)
            self.expected.settle(task, [Brought(False, lost) for _ in (wanted.outputs if wanted else ())])
            self._ledger.publish(task, "outputs-lost", lost)

    async def _one(
        self, link: TaskLink, task: Task, output: Output, uploads: tuple[Upload, ...], may_be_large: Callable[[], bool]
    ) -> Brought:
        try:
            return await self._fetched(link, task, output, uploads, may_be_large)
        except Unusable as error:
            return Brought(False, str(error))
        except UnicodeEncodeError:
            return Brought(
                False,
                (
                    f"the controller's locale cannot represent the name {output.local}; start the controller with "
                    "LC_ALL=C.UTF-8"
                ),
            )
        except OSError as error:
            named = isinstance(error.filename, str) and os.path.isabs(error.filename)
            where = error.filename if named else output.local
            raise StateError(f"cannot write the outputs of task {task.id}: {where}: {error.strerror}") from None

    async def _fetched(
        self, link: TaskLink, task: Task, output: Output, uploads: tuple[Upload, ...], may_be_large: Callable[[], bool]
    ) -> Brought:
        files, container = link.runtime.files, task.container_ref
        folder = task.spec.workdir or "/"
        is_job = isinstance(link, ClusterLink)
        if not posixpath.isabs(output.path) and (is_job or not task.spec.workdir):
            folder = (await self._asked(link, files.folder(container))).strip() or "/"
            if is_job and folder == "/":
                return Brought(False, "its command did not start")
        path = within(folder, output.path)
        pieces: tuple[str, ...] = (".",)
        if output.changed:
            pieces = changed_paths(await self._asked(link, files.changes(container)), path)
        arriving = self.expected.arriving[task.id]
        most = MAX_BYTES - arriving.artifacts if self._is_artifact(output) else None
        with _staging(output, task.id) as staging:
            arrivals = list[Arrival]()
            for piece in pieces:
                where = "" if piece == "." else piece
                there = posixpath.join(path, where) if where else path

                def unpacking(packed: bool, below: str = where) -> Unpacking:
                    return Unpacking(staging / "new", below, arrivals, most, changed=output.changed, packed=packed)

                arrival = await self._fetch(link, task, there, unpacking, self._check_size(task, output, may_be_large))
                if arrival is not None:
                    arrivals.append(arrival)
                elif not output.changed:  # else somebody has removed it meanwhile
                    words = f"no {path} {f'on {link.node.name}' if is_job else 'in its container'}"
                    return Brought(False, self.expected.lost(task) or words)
            found = await in_thread(
                self._arrive, staging / "new", output, path, task.id, self._known(uploads), arrivals
            )
        if most is not None:
            arriving.artifacts += sum(arrival.bytes for arrival in arrivals)
        return Brought(True, found.words, found.files, found.bytes)

    def _is_artifact(self, output: Output) -> bool:
        return Path(output.local).is_relative_to(self._artifacts)

    def _check_size(self, task: Task, output: Output, may_be_large: Callable[[], bool]) -> Check:
        """What looks at the bytes of an output: raises PutOff for large ones, and Unusable for too many artifacts."""
        is_artifact = self._is_artifact(output)
        began = self.expected.arriving[task.id].bytes

        def check(size: int) -> None:
            if size >= LARGE and task.id not in self.large:
                self.large.add(task.id)
                if not may_be_large():
                    raise PutOff
            if is_artifact and size - began > MOST_ARCHIVED:
                raise Unusable(TOO_LARGE)

        return check

    async def _asked(self, link: TaskLink, command: Command) -> str:
        """What its container answers; raises Unusable when it is gone."""
        result = await link.run(command)
        if not result.ok and link.runtime.files.says_missing(result.err):
            raise Unusable(REMOVED)
        if 'executing "' in result.err and " at <" in result.err:  # an answer of Go's templates
            raise RuntimeFailed(
                f"{link.node.name} does not tell the working folder of the container; use paths that begin with /"
            )
        link.runtime.check(result)
        return result.out

    def _arrive(
        self, new: Path, output: Output, path: str, task: str, known: dict[str, str], arrivals: list[Arrival]
    ) -> Placed:
        """In a thread. A file goes into a folder that there is, under its own name."""
        local = Path(output.local)
        if not output.changed and (output.local.endswith("/") or (local.is_dir() and new.is_file())):
            local = local / posixpath.basename(path)
        return arrive(new, local, task, self._store, known, arrivals)

    def _known(self, uploads: tuple[Upload, ...]) -> dict[str, str]:
        """The files here that were uploaded, as they were then: by absolute path the SHA-256."""
        known = {}
        for upload in uploads:
            with contextlib.suppress(Refused, StateError):
                for path, entry in self._snapshots.get(upload.snapshot).items():
                    place = posixpath.join(upload.source, path) if path else upload.source
                    known[place] = entry.content if entry.kind == "file" else f"link:{entry.content}"
        return known

    async def _fetch(
        self, link: TaskLink, task: Task, path: str, unpacking: Callable[[bool], Unpacking], check: Check
    ) -> Arrival | None:
        """Unpack a path of its container; None when there is none."""
        try:
            return await self._unpacked(link, task, path, unpacking(False), check)
        except ZerosAhead:
            return await self._unpacked(link, task, path, unpacking(True), check, packed=True)

    async def _unpacked(
        self, link: TaskLink, task: Task, path: str, unpacking: Unpacking, check: Check, *, packed: bool = False
    ) -> Arrival | None:
        runtime, container = link.runtime, task.container_ref
        command = (
            runtime.files.copy_packed(container, path) if packed else runtime.files.copy(container, path, into=False)
        )
        feed = _Feed(unpacking)
        tail = Excerpt()
        try:
            async with link.stream(command, own=True) as stream:
                async for fd, data in _steadily(stream, link.node.name):
                    if fd == 2:
                        tail.add(data)
                        continue
                    self.expected.arriving[task.id].bytes += len(data)
                    check(self.expected.arriving[task.id].bytes)
                    await feed.take(data)
            if stream.exit_code == 0:
                return await feed.end()
        finally:
            await feed.close()
        if runtime.files.says_missing(str(tail)):
            return None
        raise RuntimeFailed(with_node(link.node.name, runtime.complaint(str(tail))))


class _Feed:
    """Gives what comes of an archive to the one who unpacks it, in threads; compressed or not."""

    def __init__(self, unpacking: Unpacking) -> None:
        self._unpacking = unpacking
        self._fed: Fed[None] | None = None
        self._gunzip: Any = None
        self._waiting: list[bytes] = []
        self._size = 0

    async def take(self, data: bytes) -> None:
        """Some more of it: nothing is done before there is enough for a thread to be worth it."""
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _WORTH:
            await self._flush()

    async def end(self) -> Arrival:
        """It is whole. Raises what `Unpacking.reading` raises, as does `take`."""
        await self._flush()
        await in_thread(self._end)
        return self._unpacking.arrival

    async def close(self) -> None:
        """Let go of what is open."""
        if self._fed is not None:
            await in_thread(self._fed.close)

    async def _flush(self) -> None:
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        await in_thread(self._feed, data)

    def _feed(self, data: bytes) -> None:
        if self._fed is None:
            self._fed = Fed(self._unpacking.reading())
            self._gunzip = zlib.decompressobj(31) if data[:2] == _GZIP else None
        if self._gunzip is None:
            if data:
                self._fed.feed(data)
            return
        try:
            while plain := self._gunzip.decompress(data, CHUNK):
                self._fed.feed(plain)
                data = self._gunzip.unconsumed_tail
        except zlib.error as error:
            raise RuntimeFailed(f"received damaged data: {error}") from None

    def _end(self) -> None:
        if self._gunzip is not None and not self._gunzip.eof:
            raise RuntimeFailed("received incomplete data")
        if self._fed is not None:
            self._fed.end()


async def _steadily(stream: Stream, node: str) -> AsyncIterator[tuple[int, bytes]]:
    """What comes; raises RuntimeFailed when nothing comes for long."""
    try:
        while True:
            async with asyncio.timeout(STALL):
                chunk = await anext(stream)
            yield chunk
    except StopAsyncIteration:
        return
    except TimeoutError:
        raise RuntimeFailed(
            f"{node}: received nothing for {STALL:g} s; check whether its disk or its engine hangs"
        ) from None


@contextlib.contextmanager
def _staging(output: Output, task: str) -> Iterator[Path]:
    """A folder of our own on the file system where the output goes, and nothing of it or of one before afterwards."""
    local = Path(output.local)
    beside = local if output.local.endswith("/") or local.is_dir() else local.parent
    beside.mkdir(parents=True, exist_ok=True)
    for left in beside.glob(f"{UNFINISHED}{task}-{'?' * 8}"):
        shutil.rmtree(left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{task}-", dir=beside))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _said(output: Output, brought: Brought) -> str:
    return f"{output.path}: {brought.words}" + (f" in {os.path.normpath(output.local)}" if brought.files else "")
