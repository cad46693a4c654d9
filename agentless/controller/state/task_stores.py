"""The stores of tasks, and their problems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from agentless.controller.ownership import Ownership
from agentless.errors import StateError
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from agentless.stores.workflow_proof import WorkflowProof


class TaskStores:
    """The state file with live tasks, the history with ended ones, and the secrets of tasks that have not started.

    `proof`, if there is one, has the record of stopped jobs, which outlives the state folder. `troubles` says for each
    store why its last write failed. Nothing is written into a folder that is another controller's by now.
    """

    def __init__(
        self,
        state: TaskStore,
        history: History,
        secrets: SecretStore,
        ownership: Ownership,
        proof: WorkflowProof | None = None,
    ) -> None:
        self.state = state
        self.history = history
        self.secrets = secrets
        self.ownership = ownership
        self.proof = proof
        self.troubles: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        """Why the last writes failed, None if none did."""
        return "; ".join(self.troubles.values()) or None

    @contextmanager
    def writing(self, store: Literal["state", "history", "stops"]) -> Iterator[None]:
        """Wrap a write into a store, to keep `troubles` current."""
        self.ownership.check()
        try:
            yield
        except StateError as error:
            self.troubles[store] = str(error)
            raise
        self.troubles.pop(store, None)

    def record_stops(self, *jobs: str) -> None:
        """Record that jobs of workflows were stopped, and what could not be recorded before. Raises StateError."""
        if self.proof is not None:
            with self.writing("stops"):
                self.proof.record(jobs)
