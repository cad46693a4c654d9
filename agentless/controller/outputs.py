"""What tasks bring back when they have ended: fetched from their containers, put in its place here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentless.controller.core import Core
from agentless.controller.guarded import guarded_item
from agentless.controller.in_thread import in_thread
from agentless.controller.link import Link
from agentless.errors import AgentlessError, Refused, RuntimeFailed, StateError
from agentless.model.command import Command
from agentless.model.files import UNFINISHED, Output, Upload, within
from agentless.model.task import Ended, Task
from agentless.model.task_id import first_try, next_try
from agentless.model.text import both_ends
from agentless.model.units import format_size
from agentless.model.view import OutputView
from agentless.rules.files import changed_paths
from agentless.rules.keep import LARGE
from agentless.session import Stream
from agentless.stores.arrivals import Arrival, Placed, Unpacking, Unusable, ZerosAhead, arrive
from agentless.stores.outputs import Brought, OutputStore, Wanted
from agentless.stores.snapshots import SnapshotStore
from agentless.tar import CHUNK, Fed

_WORTH = 1 << 18
"""Bytes that are handed to a thread at once."""
_GZIP = b"\x1f\x8b"
STALL = 300.0
"""Seconds without a byte after which a copy out of a container is given up, to be tried again."""
_REMOVED = "its container was removed before it was brought"
_NAMED = 3
"""Tasks that are named as those that are waited for."""


class PutOff(Exception):
    """The outputs of a task are large, and have to wait until it is the turn of large ones."""


@dataclass
class _Coming:
    """Outputs on their way from a node: so many bytes came over the link so far."""

    node: str
    bytes: int = 0


class Outputs:
    """Knows what is to be brought, brings it, and says what became of it."""

    def __init__(self, core: Core, store: OutputStore, snapshots: SnapshotStore) -> None:
        self.store = store
        self._core = core
        self._snapshots = snapshots
        self._problems: dict[str, str] = {}
        self._coming: dict[str, _Coming] = {}
        self.large: set[str] = set()

    def __contains__(self, task: object) -> bool:
        """Whether something of this try is to be brought, and was not."""
        return task in self.store

    def want(self, task: Task) -> None:
        """Take down what a new task is to bring."""
        outputs = tuple(
            Output(each.path, each.local.replace("{id}", task.id), each.changed) for each in task.spec.outputs
        )
        self.store.want(task.id, Wanted(outputs, task.spec.uploads))

    def forget(self, task: Task) -> None:
        """Bring nothing of this try any more; what is here stays."""
        first = first_try(task.id)
        others = [each for each in (first, next_try(task.id)) if each != task.id and self._core.knows(each)]
        if task.id != first or not others:  # what is wanted is kept with the first try, for all of them
            self.store.remove(task.id)
        if not others:
            self.store.remove(first)
        self._problems.pop(task.id, None)

    @property
    def waiting(self) -> bool:
        """Whether something is to be brought of a task that has ended."""
        return any(task not in self._core.tasks for task in self.store.pending())

    def settle_lost(self) -> None:
        """Of tasks that never started, or whose container is gone, nothing will come: that is known from here on."""
        self._problems = {task: words for task, words in self._problems.items() if task in self.store}
        self.large = {task for task in self.large if task in self.store}
        for first in self.store.pending():
            if first not in self._core.tasks:
                with guarded_item(f"task {first}: outputs that are lost"):
                    self._settle_lost(first)

    def view(self, task: Task) -> tuple[OutputView, ...]:
        """What there is to say of each output; nothing of a task whose labels alone ask for some."""
        wanted = self.store.wanted(task.id) if task.spec.outputs else None
        if wanted is None:
            return ()
        if brought := self.store.brought(task.id):
            return tuple(
                OutputView(o.path, o.local, "here" if b.here else "missing", b.words, b.files, b.bytes)
                for o, b in zip(wanted.outputs, brought, strict=True)
            )
        state, words = self._state(task)
        return tuple(OutputView(output.path, output.local, state, words, 0, 0) for output in wanted.outputs)

    def open(self, task: Task) -> bool:
        """Whether something of an ended task may still come."""
        return any(each.state in ("coming", "stuck") for each in self.view(task))

    def coming(self, task: Task) -> bool:
        """Whether somebody who waits for the task should wait for its outputs, too."""
        return any(each.state == "coming" for each in self.view(task))

    async def bring(self, link: Link, task: Task, may_be_large: Callable[[], bool]) -> None:
        """Fetch all outputs of an ended task, and put them in their places. Raises what went wrong.

        Once they are known to be large `may_be_large` is asked; if they may not, PutOff is raised.
        """
        wanted = self.store.wanted(task.id)
        if wanted is None:
            return
        self._coming[task.id] = _Coming(link.node.name)
        try:
            brought = [await self._one(link, task, output, wanted.uploads, may_be_large) for output in wanted.outputs]
        except PutOff:
            raise
        except AgentlessError as error:
            self._failed(task, str(error))
            raise
        except Exception as error:
            self._problems[task.id] = f"it failed in an unforeseen way ({type(error).__name__})"
            raise
        finally:
            del self._coming[task.id]
        self._problems.pop(task.id, None)
        if not self._core.knows(task.id):  # removed meanwhile
            self.store.remove(task.id)
            return
        self.store.settle(task.id, brought)
        said = [_said(output, one) for output, one in zip(wanted.outputs, brought, strict=True)]
        self._core.publish(task, "brought", "; ".join(said))

    # ------------------------------------------------------------------ inside

    def _failed(self, task: Task, words: str) -> None:
        if words != self._problems.get(task.id):
            self._problems[task.id] = words
            self._core.publish(task, "outputs-wait", words)

    def _settle_lost(self, first: str) -> None:
        task = self._core.history.get(first)
        if task is None:
            if not self._core.knows(next_try(first)):
                self.store.remove(first)
        elif (lost := self._lost(task)) is not None:
            wanted = self.store.wanted(first)
            self.store.settle(first, [Brought(False, lost) for _ in (wanted.outputs if wanted else ())])
            self._core.publish(task, "outputs-lost", lost)

    def _state(self, task: Task) -> tuple[str, str]:
        """Of outputs that have not come yet: where they are, and why."""
        if not isinstance(task.status, Ended):
            return "waiting", "when it has ended"
        if (lost := self._lost(task)) is not None:
            return "missing", lost
        link = self._core.links.get(task.node or "")
        if link is None:
            return "stuck", f"{task.node} is not in the inventory any more"
        if not link.online and link.answered.is_set():
            return "stuck", f"it comes when {link.node.name} answers again"
        if problem := self._problems.get(task.id):
            return "stuck", f"{problem}; it is tried again"
        if task.id in self._coming:
            return "coming", f"on its way{self._so_far(task.id)}"
        if words := self._in_front(link):
            return "coming", f"waits for {words}"
        return "coming", "on its way"

    def _in_front(self, link: Link) -> str:
        """Whose outputs are fetched from this node at present, in words."""
        tasks = [task for task, coming in self._coming.items() if coming.node == link.node.name]
        words = ", ".join(f"task {task}{self._so_far(task)}" for task in tasks[:_NAMED])
        return words and f"the outputs of {words}" + (f" and {more} more" if (more := len(tasks) - _NAMED) > 0 else "")

    def _so_far(self, task: str) -> str:
        return f" ({format_size(size)} so far)" if (size := self._coming[task].bytes) else ""

    def _lost(self, task: Task) -> str | None:
        """Why nothing will come of an ended task, None as long as something may."""
        if not isinstance(task.status, Ended):
            return None
        if not task.status.container:
            return "it never started"
        link = self._core.links.get(task.node or "")
        if link is None or link.silence is not None:
            return None
        there = any(container.id == task.status.container for container in link.containers)
        return None if there else _REMOVED

    async def _one(
        self, link: Link, task: Task, output: Output, uploads: tuple[Upload, ...], may_be_large: Callable[[], bool]
    ) -> Brought:
        try:
            return await self._fetched(link, task, output, uploads, may_be_large)
        except Unusable as error:
            return Brought(False, str(error))
        except UnicodeEncodeError:
            return Brought(
                False, f"{output.local} cannot be named in the locale of the controller; start it with LC_ALL=C.UTF-8"
            )
        except OSError as error:
            named = isinstance(error.filename, str) and os.path.isabs(error.filename)
            where = error.filename if named else output.local
            raise StateError(f"the outputs of task {task.id} cannot be written: {where}: {error.strerror}") from None

    async def _fetched(
        self, link: Link, task: Task, output: Output, uploads: tuple[Upload, ...], may_be_large: Callable[[], bool]
    ) -> Brought:
        files, container = link.runtime.workspace, task.container_ref
        folder = task.spec.workdir or "/"
        if not (posixpath.isabs(output.path) or task.spec.workdir):
            folder = (await self._asked(link, files.folder(container))).strip() or "/"
        path = within(folder, output.path)
        pieces: tuple[str, ...] = (".",)
        if output.changed:
            pieces = changed_paths(await self._asked(link, files.changes(container)), path)
        with _room(output, task.id) as room:
            arrivals = list[Arrival]()
            for piece in pieces:
                where = "" if piece == "." else piece
                there = posixpath.join(path, where) if where else path

                def unpacking(packed: bool, below: str = where) -> Unpacking:
                    return Unpacking(room / "new", below, arrivals, changed=output.changed, packed=packed)

                arrival = await self._fetch(link, task, there, unpacking, may_be_large)
                if arrival is not None:
                    arrivals.append(arrival)
                elif not output.changed:  # else somebody has removed it meanwhile
                    return Brought(False, self._lost(task) or f"there is no {path} in its container")
            found = await in_thread(self._arrive, room / "new", output, path, task.id, self._known(uploads), arrivals)
        return Brought(True, found.words, found.files, found.bytes)

    async def _asked(self, link: Link, command: Command) -> str:
        """What its container answers; raises Unusable when it is gone."""
        result = await link.run(command)
        if not result.ok and link.runtime.workspace.says_missing(result.err):
            raise Unusable(_REMOVED)
        link.runtime.check(result)
        return result.out

    def _arrive(
        self, new: Path, output: Output, path: str, task: str, known: dict[str, str], arrivals: list[Arrival]
    ) -> Placed:
        """In a thread. A file goes into a folder that there is, under its own name."""
        local = Path(output.local)
        if not output.changed and (output.local.endswith("/") or (local.is_dir() and new.is_file())):
            local = local / posixpath.basename(path)
        return arrive(new, local, task, self.store, known, arrivals)

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
        self,
        link: Link,
        task: Task,
        path: str,
        unpacking: Callable[[bool], Unpacking],
        may_be_large: Callable[[], bool],
    ) -> Arrival | None:
        """Unpack a path of its container; None when there is none."""
        try:
            return await self._unpacked(link, task, path, unpacking(False), may_be_large)
        except ZerosAhead:
            return await self._unpacked(link, task, path, unpacking(True), may_be_large, packed=True)

    async def _unpacked(
        self,
        link: Link,
        task: Task,
        path: str,
        unpacking: Unpacking,
        may_be_large: Callable[[], bool],
        *,
        packed: bool = False,
    ) -> Arrival | None:
        runtime, container = link.runtime, task.container_ref
        command = runtime.copy_packed(container, path) if packed else runtime.copy(container, path, into=False)
        feed = _Feed(unpacking)
        words = b""
        try:
            async with link.stream(command, own=True) as stream:
                async for fd, data in _steadily(stream, link.node.name):
                    if fd == 2:
                        words = both_ends(words, data)
                        continue
                    self._coming[task.id].bytes += len(data)
                    if self._coming[task.id].bytes >= LARGE and task.id not in self.large:
                        self.large.add(task.id)
                        if not may_be_large():
                            raise PutOff
                    await feed.take(data)
            if stream.exit_code == 0:
                return await feed.end()
        finally:
            await feed.close()
        said = words.decode("utf-8", "replace")
        if runtime.workspace.says_missing(said):
            return None
        raise RuntimeFailed(f"{link.node.name}: {runtime.complaint(said)}")


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
            raise RuntimeFailed(f"what came is damaged: {error}") from None

    def _end(self) -> None:
        if self._gunzip is not None and not self._gunzip.eof:
            raise RuntimeFailed("what came is not whole")
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
        raise RuntimeFailed(f"{node}: nothing came for {STALL:g} s; see whether docker cp hangs there") from None


@contextlib.contextmanager
def _room(output: Output, task: str) -> Iterator[Path]:
    """A folder of our own on the file system where the output goes, and nothing of it or of one before afterwards."""
    local = Path(output.local)
    beside = local if output.local.endswith("/") or local.is_dir() else local.parent
    beside.mkdir(parents=True, exist_ok=True)
    for left in beside.glob(f"{UNFINISHED}{task}-{'?' * 8}"):
        shutil.rmtree(left, ignore_errors=True)
    room = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{task}-", dir=beside))
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _said(output: Output, brought: Brought) -> str:
    return f"{output.path}: {brought.words}" + (f" in {os.path.normpath(output.local)}" if brought.files else "")
