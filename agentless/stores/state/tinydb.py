"""The live state: one TinyDB file that a crash cannot tear.

TinyDB's own storage truncates in place. Here, every write makes a new file, which replaces the old one once it is
synced to disk. The previous file is kept as `<name>.last`. Reads come from memory. The file has a schema version; older
versions load for ever (`UPGRADES`). A file gets version `NEWEST` with the first thing in it that an older agentless
cannot read, or would drop, so that it says so: a part of a GPU, a gang, a requirement, a workflow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError
from tinydb.storages import Storage
from tinydb.table import Document, Table

from agentless.errors import StateError
from agentless.model.nodes.device import any_parts
from agentless.model.tasks.task import Blocked, Task
from agentless.stores import private
from agentless.stores.state.upgrades import with_needs

Tables = dict[str, dict[str, Any]]


def _from_1(tables: Tables) -> Tables:
    for task in tables.get("tasks", {}).values():
        with_needs(task)
    tables["meta"]["1"]["version"] = 2
    return tables


VERSION = 2
NEWEST = 3
"""Like `VERSION`; numbers of GPUs may be those of parts (`"0/1"`), and tasks may depend on others."""
UPGRADES: dict[int, Callable[[Tables], Tables]] = {1: _from_1}
"""By version: converts a whole document to the next version."""

_TASK = TypeAdapter(Task)


class AtomicStorage(Storage):
    """TinyDB's `read` and `write` over a file that is complete at every moment."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.warning: str | None = None
        self._tables = self._load()

    def read(self) -> Tables | None:
        """A copy of all tables, from memory; None before the first write. TinyDB changes the copy before it writes."""
        return None if self._tables is None else dict(self._tables)

    def write(self, data: Tables) -> None:
        """Replace the file. If it raises StateError, neither the file nor the result of `read` has changed."""
        try:
            self._replace(orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS))
        except OSError as error:
            raise StateError(_why(self._path, error)) from None
        self._tables = data

    @property
    def _last(self) -> Path:
        return self._path.with_name(self._path.name + ".last")

    def _replace(self, content: bytes) -> None:
        fresh = private.fresh(self._path, content)
        if self._path.exists():
            # A second name for the old file, so that a complete one exists at every moment.
            spare = self._path.with_name(self._path.name + ".spare")
            spare.unlink(missing_ok=True)
            try:
                os.link(self._path, spare)
            except OSError:  # a file system without hard links
                private.make(spare)
                shutil.copyfile(self._path, spare)
            os.replace(spare, self._last)
        os.replace(fresh, self._path)
        # From here on it is written. At worst, a power cut restores the previous file.
        with contextlib.suppress(OSError):
            private.sync_folder(self._path.parent)

    def _load(self) -> Tables | None:
        problem = ""
        for path in (self._path, self._last):
            try:
                tables = _upgraded(orjson.loads(path.read_bytes()), path)
            except orjson.JSONDecodeError:
                problem = problem or f"{path} is damaged"
            except FileNotFoundError:
                problem = problem or f"{path} is missing"
            except OSError as error:
                raise StateError(_why(path, error)) from None
            else:
                if problem:
                    self.warning = f"{problem}; restored the previous copy, {path.name}"
                    self._set_aside()
                return tables
        if not self._path.exists() and not self._last.exists():
            return None
        raise StateError(
            f"{problem}, and so is the previous copy; move both away, then run: agentless recover (tasks keep running)"
        )

    def _set_aside(self) -> None:
        """Set a torn file aside for inspection. The next write would replace the only good copy with it."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path, self._path.with_name(self._path.name + ".torn"))


def _upgraded(tables: Tables, path: Path) -> Tables:
    try:
        version = tables["meta"]["1"]["version"]
    except (KeyError, TypeError):
        version = None
    if not isinstance(version, int) or version < 1:
        raise StateError(f"{path} is not a state file of agentless; move it away and restart")
    if version > NEWEST:
        raise StateError(
            f"{path} is from a newer agentless (state version {version}, this one supports {NEWEST}); upgrade "
            "agentless, or set XDG_STATE_HOME to another folder"
        )
    for old in range(version, VERSION):
        tables = UPGRADES[old](tables)
    return tables


def damaged(what: str, error: ValidationError) -> StateError:
    """The error for an invalid part of the state file."""
    why = error.errors()[0]["msg"]
    return StateError(f"{what} ({why}); move the file away, then run: agentless recover (tasks keep running)")


def _why(path: Path, error: OSError) -> str:
    fixes = {
        errno.ENOSPC: "the disk is full; free some space there",
        errno.EDQUOT: "your disk quota is used up; free some space there",
        errno.EROFS: "the file system is read-only; make it writable, or set XDG_STATE_HOME to another folder",
        errno.EACCES: "permission denied; correct its permissions, or set XDG_STATE_HOME to another folder",
    }
    return f"cannot use the state in {path.parent}: {fixes.get(error.errno or 0, error.strerror)}"


class _Tasks(Table):
    """A table with strings as ids, in which several documents are replaced in one write."""

    document_id_class = str  # type: ignore[assignment]

    def put(self, documents: dict[str, Document], gone: Iterable[str] = ()) -> None:
        """Insert or replace documents and remove others, in one write of the file."""

        def change(table: dict[str, Any]) -> None:
            table.update(documents)
            for task in gone:
                table.pop(task, None)

        self._update_table(change)  # type: ignore[arg-type]


class TaskStore:
    """The live tasks with their allocations, by task id. `controller` is the id of this file in labels."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._storage = AtomicStorage(str(path))
        tables = self._storage.read() or {"meta": {"1": {"version": VERSION}}}
        about = tables["meta"]["1"]
        if not about.get("controller"):
            about = {**about, "controller": secrets.token_hex(8)}
            self._storage.write({**tables, "meta": {"1": about}})
        self.controller: str = about["controller"]
        self._tasks = _Tasks(self._storage, "tasks")

    @property
    def warning(self) -> str | None:
        """What was wrong with the file when it was opened, or None."""
        return self._storage.warning

    @property
    def storage(self) -> AtomicStorage:
        """The storage, for stores of other tables."""
        return self._storage

    def table(self, name: str) -> _Tasks:
        """Another table of the same file."""
        return _Tasks(self._storage, name)

    def rise(self) -> None:
        """Give the file the newest version. It keeps it: the history has such tasks, too."""
        tables = self._storage.read() or {}
        about = tables["meta"]["1"]
        if about["version"] < NEWEST:
            self._storage.write({**tables, "meta": {"1": {**about, "version": NEWEST}}})

    def load(self) -> dict[str, Task]:
        """All live tasks. Raises StateError for an invalid one."""
        tasks = {}
        for document in self._tasks.all():
            try:
                task = _TASK.validate_python(dict(document))
            except ValidationError as error:
                raise damaged(f"{self._path} contains a damaged task", error) from None
            tasks[task.id] = task
        return tasks

    def save(self, *tasks: Task, gone: Iterable[str] = ()) -> None:
        """Save tasks and remove others, in one write, synced to disk."""
        if any(map(_is_new, tasks)):
            self.rise()
        self._tasks.put({t.id: Document(_TASK.dump_python(t, mode="json"), doc_id=t.id) for t in tasks}, gone)  # type: ignore[arg-type]

    def remove(self, *task_ids: str) -> None:
        """Remove tasks."""
        if any(self._tasks.contains(doc_id=task_id) for task_id in task_ids):  # type: ignore[arg-type]
            self.save(gone=task_ids)


def _is_new(task: Task) -> bool:
    """Whether an older agentless cannot read this task, or would start it as one that depends on no other."""
    spec, placement = task.spec, task.placement
    depends = isinstance(task.status, Blocked) or bool(spec.terms.requires or spec.gang or spec.multinode or spec.job)
    has_parts = bool(placement and (placement.parents or any_parts(placement.gpus)))
    return depends or has_parts or any_parts(spec.needs.indices)
