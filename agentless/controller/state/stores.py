"""Where the state is written, and why it could not be written last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from agentless.errors import StateError
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore


class Stores:
    """The state file with the live tasks, the history of those that have ended, and the secrets of those to come.

    `troubles` are why one could not be written last, in words, each until a write of its own is good.
    """

    def __init__(self, state: TaskStore, history: History, secrets: SecretStore) -> None:
        self.state = state
        self.history = history
        self.secrets = secrets
        self.troubles: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        """Why stores could not be written last, None when they could."""
        return "; ".join(self.troubles.values()) or None

    @contextmanager
    def writing(self, store: Literal["state", "history"]) -> Iterator[None]:
        """A write into a store, which is in trouble from a failed one to a good one."""
        try:
            yield
        except StateError as error:
            self.troubles[store] = str(error)
            raise
        self.troubles.pop(store, None)
