"""What tasks bring back when they have ended: fetched from their containers, put in its place here."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agentless.controller.core import Core
from agentless.controller.guarded import guarded_item
from agentless.controller.in_thread import in_thread
from agentless.controller.link import Link
from agentless.errors import AgentlessError, Refused, RuntimeFailed, StateError
from agentless.model.files import UNFINISHED, Output, Upload, within
from agentless.model.task import Ended, Task
from agentless.model.task_id import first_try, next_try
from agentless.model.view import OutputView
from agentless.rules.files import changed_paths
from agentless.stores.arrivals import Arrival, Placed, arrive, unpack
from agentless.stores.outputs import Brought, OutputStore, Wanted
from agentless.stores.snapshots import SnapshotStore

_SAID = 4000


class Outputs:
    """Knows what is to be brought, brings it, and says what became of it."""

    def __init__(self, core: Core, store: OutputStore, snapshots: SnapshotStore) -> None:
        self.store = store
        self._core = core
        self._snapshots = snapshots
        self._problems: dict[str, str] = {}

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

    async def bring(self, link: Link, task: Task) -> None:
        """Fetch all outputs of an ended task, and put them in their places. Raises what went wrong."""
        wanted = self.store.wanted(task.id)
        if wanted is None:
            return
        try:
            brought = [await self._one(link, task, output, wanted.uploads) for output in wanted.outputs]
        except (AgentlessError, OSError) as error:
            words = str(error) if isinstance(error, AgentlessError) else f"{error.filename}: {error.strerror}"
            news, self._problems[task.id] = words != self._problems.get(task.id), words
            if news:
                self._core.publish(task, "outputs-wait", words)
            if isinstance(error, OSError):
                raise StateError(f"the outputs of task {task.id} cannot be written: {words}") from None
            raise
        except Exception as error:
            self._problems[task.id] = f"it failed in an unforeseen way ({type(error).__name__})"
            raise
        self._problems.pop(task.id, None)
        if not self._core.knows(task.id):  # removed meanwhile
            self.store.remove(task.id)
            return
        self.store.settle(task.id, brought)
        said = [_said(output, one) for output, one in zip(wanted.outputs, brought, strict=True)]
        self._core.publish(task, "brought", "; ".join(said))

    # ------------------------------------------------------------------ inside

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
        return "coming", "on its way"

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
        return None if there else "its container was removed before it was brought"

    async def _one(self, link: Link, task: Task, output: Output, uploads: tuple[Upload, ...]) -> Brought:
        files, container = link.runtime.workspace, task.container_ref
        result = await link.run(files.folder(container))
        if not result.ok:
            if files.says_missing(result.err):
                return Brought(False, "its container was removed before it was brought")
            link.runtime.check(result)
        folder = result.out.strip() or "/"
        path = within(folder, output.path)
        pieces: tuple[str, ...] = (".",)
        if output.changed:
            result = await link.run(files.changes(container))
            link.runtime.check(result)
            pieces = changed_paths(result.out, path)
        with _room(output, task.id) as room:
            arrivals = list[Arrival]()
            for piece in pieces:
                where = "" if piece == "." else piece
                archive = room / "archive"
                if not await self._fetch(link, task, posixpath.join(path, where) if where else path, archive):
                    if output.changed:
                        continue  # somebody has removed it meanwhile
                    return Brought(False, f"there is no {path} in its container")
                arrivals.append(await in_thread(unpack, archive, room / "new", where, changed=output.changed))
                archive.unlink()
            found = await in_thread(self._arrive, room / "new", output, path, task.id, self._known(uploads), arrivals)
        return Brought(True, found.words, found.files, found.bytes)

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

    async def _fetch(self, link: Link, task: Task, path: str, archive: Path) -> bool:
        """Get a path of its container as a tar archive; False when there is none."""
        words = b""
        with archive.open("wb") as file:
            async with link.stream(link.runtime.copy(task.container_ref, path, into=False)) as stream:
                async for fd, data in stream:
                    if fd == 1:
                        file.write(data)
                    else:
                        words = (words + data)[-_SAID:]
        if stream.exit_code == 0:
            return True
        said = words.decode("utf-8", "replace")
        if link.runtime.workspace.says_missing(said):
            return False
        raise RuntimeFailed(f"{link.node.name}: {link.runtime.complaint(said)}")


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
