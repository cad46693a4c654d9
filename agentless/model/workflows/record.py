"""What is kept of a workflow, beside its tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkflowRecord:
    """A workflow: its id, which is that of its batch, its name, and the text of its file, empty if unknown."""

    id: str
    name: str
    text: str = ""
