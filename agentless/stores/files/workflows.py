"""The records of workflows: a file for each, named by its id."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from agentless.errors import StateError
from agentless.model.tasks.task_id import is_task_id
from agentless.model.workflows.record import WorkflowRecord
from agentless.stores import private

_RECORD = TypeAdapter(WorkflowRecord)


class WorkflowStore:
    """The records in a private folder. Raises StateError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with self._explained():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, record: WorkflowRecord) -> None:
        """Add a record; it is on disk before this returns."""
        path = self._path(record.id)
        with self._explained():
            os.replace(private.fresh(path, orjson.dumps(asdict(record))), path)
            private.sync_folder(self._folder)

    def get(self, workflow: str) -> WorkflowRecord | None:
        """The record of a workflow; None if there is none, or if it is damaged: its tasks tell the rest."""
        with contextlib.suppress(OSError, ValidationError):
            return _RECORD.validate_json(self._path(workflow).read_bytes())
        return None

    def ids(self) -> list[str]:
        """The ids of all recorded workflows, the oldest first."""
        with self._explained():
            return sorted(name for name in os.listdir(self._folder) if is_task_id(name))

    def remove(self, workflow: str) -> None:
        """Remove a record, if there is one."""
        with self._explained():
            self._path(workflow).unlink(missing_ok=True)

    def _path(self, workflow: str) -> Path:
        if not is_task_id(workflow):
            raise StateError(f"{workflow[:40]!r} is not the id of a workflow")
        return self._folder / workflow

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return private.explained(f"cannot record workflows in {self._folder}")
