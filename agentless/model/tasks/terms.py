"""When a task may run, for how long, and how often."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentless.errors import UsageError

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "CONT", "WINCH")
"""The signals that a program may be told with that its time is nearly over; SIGKILL comes by itself."""

MAX_RETRIES = 1000

RETRY_ON = ("failed", "oom")
"""After which endings a task is tried again, when it does not say."""

_KINDS = ("failed", "oom", "timeout", "lost")
_EXIT = re.compile(r"exit:([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Terms:
    """What the queue goes by. Times in seconds.

    A higher `priority` comes first. `wait_for` is how long it may wait for its place: None for ever, 0 not at all.
    `start_at` (Unix seconds) is when it may go into the queue.

    `time_limit` is how long it may run (None: nobody knows). It is told by `signal`: `signal_before` it is over, and
    killed when it is; without that it is told when it is over, and killed after its grace time.

    It is tried again up to `retries` times after an ending that `retry_on` names: `failed`, `oom`, `timeout`, `lost`
    or `exit:CODE`; `backoff` after the first try, twice as long after each one more.

    Of its batch at most `max_parallel` run at a time (None: as many as there is room for).
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


def parse_signal(text: str) -> str:
    """`USR1` out of `SIGUSR1`, `usr1` or `USR1`."""
    name = text.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise UsageError(f"--signal {text[:80]!r}: write one of {', '.join(SIGNALS)}")
    return name


def parse_retry_on(text: str) -> tuple[str, ...]:
    """`oom,lost,exit:75` as its parts."""
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        code = _EXIT.fullmatch(part)
        if part not in _KINDS and not (code and 0 < int(code[1]) < 256):
            raise UsageError(f"--retry-on {part[:80]!r}: write {', '.join(_KINDS)} or exit:CODE, like exit:75")
    return parts
