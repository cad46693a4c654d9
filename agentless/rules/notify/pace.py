"""When the next message may go to a target. Times are Unix seconds, durations seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

GAP = 10.0
"""Between two messages. It doubles while there is always something to send, so that a sweep is a few messages."""
LONGEST_GAP = 600.0
RETRY = 10.0
"""Before a message that could not be sent is tried again. It doubles with each try."""
LONGEST_RETRY = 900.0
LONGEST_WAIT = 3600.0
"""The longest time for which a server may put a message off."""
HELD = 24 * 3600.0
"""How long the end of a task waits for the end of its batch."""
KEPT = 48 * 3600.0
"""After this time, an event is not sent any more."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How messages to one target went. `failures` in succession, the first at `failing_since`; `problem`: the last."""

    sent_at: float | None = None
    gap: float = 0.0
    not_before: float = 0.0
    failures: int = 0
    failing_since: float | None = None
    problem: str = ""

    def is_due(self, now: float) -> bool:
        """Whether a message may go now, also if the clock was put back."""
        return now >= self.not_before or self.not_before > now + LONGEST_WAIT

    def sent(self, now: float) -> Pace:
        """After a message was sent. After a quiet time, the next one may follow soon."""
        quiet = self.sent_at is None or now - self.sent_at > 2 * self.gap
        gap = GAP if quiet else min(LONGEST_GAP, 2 * self.gap)
        return Pace(sent_at=now, gap=gap, not_before=now + gap)

    def failed(self, now: float, problem: str, put_off: float = 0.0) -> Pace:
        """After a message could not be sent. `put_off` is how long the server wants to be left alone."""
        pause = max(min(LONGEST_RETRY, RETRY * 2.0 ** min(self.failures, 20)), min(put_off, LONGEST_WAIT))
        return replace(
            self,
            not_before=now + pause,
            failures=self.failures + 1,
            failing_since=now if self.failing_since is None else self.failing_since,
            problem=problem,
        )
