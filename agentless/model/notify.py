"""Notifications: the events there are, where messages about them go, and what is known of an event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from agentless.errors import UsageError
from agentless.model.nodes.device import GpuNumber

NotifyEvent = Literal["start", "end", "fail", "preempt", "lost"]
EVENTS: tuple[NotifyEvent, ...] = get_args(NotifyEvent)
NONE = "none"
"""Typed instead of events: no messages about this task."""
TargetKind = Literal["command", "webhook", "slack", "discord", "ntfy", "mail"]
KINDS: tuple[TargetKind, ...] = get_args(TargetKind)


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """Where messages go. `events` are those of tasks that do not choose their own.

    `owners` are the owners whose tasks count: `ann@laptop`, or `ann` from any machine; none: all. Of a web address,
    either `url` or the path of the file with it is given; `token_file` has a token. `command` is the program of a
    command, or the `sendmail` of a mail, which goes from `sender` (None: as sendmail does) to `to`.
    """

    name: str
    kind: TargetKind
    events: frozenset[str] = frozenset({"end"})
    owners: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    url_file: str = ""
    token_file: str = ""
    to: tuple[str, ...] = ()
    sender: str | None = None

    def hears_of(self, owner: str) -> bool:
        """Whether tasks of this owner count."""
        return not self.owners or owner in self.owners or owner.partition("@")[0] in self.owners


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of a task, as messages have it. Times are Unix seconds.

    Of a gang, `task` is its first member, and `nodes` are those of all members. Command, variables, labels and log of a
    task are never in it.
    """

    event: NotifyEvent | Literal["test"]
    at: float
    task: str
    batch: str
    owner: str
    state: str
    name: str | None = None
    node: str | None = None
    gpus: tuple[GpuNumber, ...] = ()
    exit_code: int | None = None
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    attempt: int = 1
    nodes: tuple[str, ...] = ()

    @property
    def waits_for_batch(self) -> bool:
        """Whether it is part of one message about the whole batch, once that has ended."""
        return self.event == "end"


@dataclass(frozen=True, slots=True)
class Digest:
    """What one message is about. `id` stays the same if it is sent again.

    `notices` are some of `count` events, the most important first; `states` counts all of them by state. `name` is that
    of all tasks, `batch` the batch of all of them, if there is one.
    """

    id: str
    notices: tuple[Notice, ...]
    states: dict[str, int]
    batch: str | None = None
    name: str | None = None

    @property
    def count(self) -> int:
        """The number of events."""
        return sum(self.states.values())


def parse_events(text: str) -> tuple[NotifyEvent, ...]:
    """Parse a list like `end,fail`; `none` is an empty one. Raises UsageError."""
    words = [word.strip().lower() for word in text.split(",")]
    if words == [NONE]:
        return ()
    for word in words:
        if word not in EVENTS:
            raise UsageError(f"--notify {word[:80]!r}: use {', '.join(EVENTS)}, or {NONE}")
    return tuple(event for event in EVENTS if event in words)
