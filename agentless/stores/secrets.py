"""Values of secrets until their task has started: one 0600 file per task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from agentless.errors import StateError
from agentless.model.tasks.task_id import is_task_id


class SecretStore:
    """Values by task id, in a private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"the folder {folder} cannot be made: {error.strerror}") from None

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
            raise StateError(f"secrets cannot be kept in {self._folder}: {error.strerror}") from None

    def get(self, task: str) -> dict[str, str]:
        """The values of a task, empty if there are none."""
        if not is_task_id(task):
            return {}
        try:
            values: dict[str, str] = orjson.loads((self._folder / task).read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(f"secrets cannot be read in {self._folder}: {error.strerror}") from None
        return values

    def hand_on(self, task: str, other: str) -> None:
        """Move the values of a task to another one, if they are stored."""
        try:
            (self._folder / task).replace(self._folder / other)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateError(f"secrets cannot be kept in {self._folder}: {error.strerror}") from None

    def remove(self, task: str) -> None:
        """Remove the values of a task."""
        if not is_task_id(task):
            return  # an id from a label must not lead out of the folder
        try:
            (self._folder / task).unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"secrets cannot be removed from {self._folder}: {error.strerror}") from None

    def tasks(self) -> list[str]:
        """The ids of the tasks with stored values."""
        return [path.name for path in self._folder.iterdir()]
