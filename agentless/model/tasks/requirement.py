"""What a task requires of other tasks before it may start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from agentless.errors import UsageError
from agentless.model.text import printable

Condition = Literal["completed", "failed", "ended"]
CONDITIONS: tuple[str, ...] = get_args(Condition)

MAX_REQUIREMENTS = 1000
"""The most tasks and batches that one task may wait for. A batch counts as one."""

IF_IMPOSSIBLE = ("cancel", "wait")
"""What happens to a task whose requirements cannot be met any more. None means the first of these."""

EARLIER = re.compile(r"#([1-9][0-9]{0,5})")
"""Names a task of the same request by its number, from 1 on. Only the controller's own requests have it."""

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Requirement:
    """Another task, or with `batch` all tasks of a batch, must have ended in this `state`.

    `on` is the id of its first try, and means all of its tries: the last one counts. Of a batch, it is the batch's id,
    and `members` is how many tasks it had. `completed`: all have completed. `failed`: all have ended, and at least one
    has failed. `ended`: all have ended. In a request, `on` is whatever names a task.

    Those of a task with the same `one_of`, which is not 0, are met together, like one for a batch.
    """

    on: str
    state: Condition = "completed"
    batch: bool = False
    members: int = 0
    one_of: int = 0

    @property
    def key(self) -> tuple[bool, str]:
        """What it is about: whether that is a batch, and its id."""
        return self.batch, self.on

    def __str__(self) -> str:
        """As it is typed: `2mxf:failed`."""
        return self.on if self.state == "completed" else f"{self.on}:{self.state}"


def parse_requirements(texts: Iterable[str], option: str, *, batch: bool = False) -> tuple[Requirement, ...]:
    """Requirements out of texts like `2mxf,train:failed`."""
    words = [word.strip() for text in texts for word in text.split(",")]
    return tuple(dict.fromkeys(_parse(word, option, batch=batch) for word in words))


def _parse(text: str, option: str, *, batch: bool) -> Requirement:
    on, colon, state = text.rpartition(":") if ":" in text else (text, "", "completed")
    if not on or (colon and state not in CONDITIONS):
        raise UsageError(
            f"{option} {printable(text[:80])!r}: use TASK, or TASK:{', TASK:'.join(CONDITIONS[1:])}; "
            "to list tasks, run: agentless ps"
        )
    return check_requirement(Requirement(on, state, batch))  # type: ignore[arg-type]


def check_requirement(requirement: Requirement) -> Requirement:
    """Check and return it; raises UsageError for what names no task."""
    if not requirement.on or len(requirement.on) > _LONGEST or not requirement.on.isprintable():
        raise UsageError(f"{requirement.on[:80]!r} is not a task to wait for; to list tasks, run: agentless ps")
    return requirement


def check_requirements(requires: tuple[Requirement, ...], if_impossible: str | None) -> None:
    """Raise UsageError for too many requirements, or an unknown word."""
    if len(requires) > MAX_REQUIREMENTS:
        raise UsageError(
            f"{len(requires):,} tasks to wait for; the limit is {MAX_REQUIREMENTS:,}; use --after-batch for a batch"
        )
    for requirement in requires:
        check_requirement(requirement)
    if if_impossible not in (None, *IF_IMPOSSIBLE):
        raise UsageError(f"--if-impossible {str(if_impossible)[:80]!r}: use {' or '.join(IF_IMPOSSIBLE)}")
    if if_impossible and not requires:
        raise UsageError("--if-impossible needs --after or --after-batch")
