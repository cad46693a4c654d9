"""The submission that a form of the dashboard asks for."""

from __future__ import annotations

from collections.abc import Mapping

from agentless.errors import UsageError
from agentless.rules.submit.task_request import TaskRequest
from agentless.tui.data.form import FormKind, checked


def submission_of(kind: FormKind, values: Mapping[str, str], *, preview: bool = False) -> TaskRequest:
    """The submission that the fields ask for, a text by name each; raises UsageError if one is wrong."""
    asked, wrong = checked(kind, values, preview=preview)
    if asked is None:
        raise UsageError(next(iter(wrong.values())))
    return asked
