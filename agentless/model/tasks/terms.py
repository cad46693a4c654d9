"""When a task may run, for how long, and how often."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from agentless.errors import UsageError
from agentless.model.tasks.requirement import Requirement

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "CONT", "WINCH")
"""Signals for the warning before the time limit. SIGKILL follows in any case."""

MAX_RETRIES = 1000

RETRY_ON = ("failed", "oom")
"""The outcomes after which a task is retried, by default."""

OnPreempt = Literal["requeue", "end"]
"""What follows when a task was preempted: back into the queue, or its end."""

RETRY_KINDS = ("failed", "oom", "timeout", "lost")
"""The outcomes after which a task can be retried, beside `exit:CODE`."""
_EXIT = re.compile(r"exit:([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a task in the queue. Times are in seconds.

    A higher `priority` comes first. `wait_for` is how long it may be pending: None for ever, 0 not at all. `start_at`
    (Unix seconds) is when it may enter the queue.

    `time_limit` is how long it may run (None: no limit). With `signal_before`, it gets `signal` so long before the
    limit and is killed at the limit. Without, it gets the signal at the limit and is killed after its grace time.

    It is retried up to `retries` times after an outcome in `retry_on`: `failed`, `oom`, `timeout`, `lost` or
    `exit:CODE`. The pause is `backoff` after the first try, and doubles after each one.

    At most `max_parallel` tasks of its batch run at a time (None: no limit).

    It waits for the tasks that it `requires`. If that becomes impossible, it is cancelled, or waits on
    (`if_impossible` is `wait`).

    A `preemptible` task runs where nobody else wants to, and gives way when another task needs its place, but not
    before it has run for `min_run` (None: at any time). `on_preempt` is what follows.

    It may go to one of the clusters in `overflow` if no node can start it in time (None: those of the inventory).

    Only of a VPS: it is stopped `expires` after its start, and after `idle_stop` without use. `snapshot_on_stop` is how
    many of the snapshots are kept that are made when it stops.
    """

    priority: int = 0
    time_limit: float | None = None
    wait_for: float | None = None
    start_at: float | None = None
    signal: str = "TERM"
    signal_before: float | None = None
    retries: int = 0
    retry_on: tuple[str, ...] = RETRY_ON
    backoff: float = 10.0
    max_parallel: int | None = None
    expires: float | None = None
    idle_stop: float | None = None
    snapshot_on_stop: int = 0
    requires: tuple[Requirement, ...] = ()
    if_impossible: str | None = None
    preemptible: bool = False
    min_run: float | None = None
    on_preempt: OnPreempt = "requeue"
    overflow: tuple[str, ...] | None = None


def parse_signal(text: str) -> str:
    """`USR1` out of `SIGUSR1`, `usr1` or `USR1`."""
    name = text.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise UsageError(f"--signal {text[:80]!r}: use one of {', '.join(SIGNALS)}")
    return name


def parse_on_preempt(text: str) -> OnPreempt:
    """`requeue` or `end`."""
    for known in get_args(OnPreempt):
        if text == known:
            return cast(OnPreempt, known)
    raise UsageError(f"--on-preempt {text[:80]!r}: use {' or '.join(get_args(OnPreempt))}")


def parse_retry_on(text: str) -> tuple[str, ...]:
    """Parse a list like `oom,lost,exit:75`."""
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        code = _EXIT.fullmatch(part)
        if part not in RETRY_KINDS and not (code and 0 < int(code[1]) < 256):
            raise UsageError(f"--retry-on {part[:80]!r}: use {', '.join(RETRY_KINDS)} or exit:CODE, like exit:75")
    return parts
