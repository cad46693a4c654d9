"""Values of secrets until their task has started: one 0600 file per task."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from agentless.errors import StateError
from agentless.model.tasks.task_id import is_task_id
from agentless.stores import private


class SecretStore:
    """Values by task id, in a private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with private.explained(f"cannot create the folder {folder}"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, task: str, values: Mapping[str, str]) -> None:
        """Store the values of a task."""
        if not values:
            return
        try:
            handle = os.open(self._folder / task, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(orjson.dumps(dict(values)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.remove(task)
            raise StateError(f"cannot store secrets in {self._folder}: {error.strerror}") from None

    def get(self, task: str) -> dict[str, str]:
        """The values of a task, empty if there are none."""
        if not is_task_id(task):
            return {}
        values: dict[str, str] = {}
        with (
            private.explained(f"cannot read secrets in {self._folder}"),
            contextlib.suppress(FileNotFoundError),
        ):
            values = orjson.loads((self._folder / task).read_bytes())
        return values

    def hand_on(self, task: str, other: str) -> None:
        """Let another task have the values of one, if they are kept."""
        failure = f"cannot store secrets in {self._folder}"
        with private.explained(failure), contextlib.suppress(FileNotFoundError):
            (self._folder / task).replace(self._folder / other)

    def remove(self, task: str) -> None:
        """Remove the values of a task."""
        if not is_task_id(task):
            return  # an id may come from a label: it must not lead out of the folder
        with private.explained(f"cannot remove secrets from {self._folder}"):
            (self._folder / task).unlink(missing_ok=True)

    def tasks(self) -> list[str]:
        """The ids of the tasks with stored values."""
        return [path.name for path in self._folder.iterdir()]
