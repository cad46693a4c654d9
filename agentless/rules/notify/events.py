"""Which events the change of a task is, for notifications."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.model.notify import Notice, NotifyEvent
from agentless.model.tasks.task import FAILED, Ended, Lost, Paused, Running, Task
from agentless.model.text import cut, printable
from agentless.rules.tasks.gangs.gangs import gang_key, why_all_end

PREEMPTED = "preempted"
"""The state of a task that has made room for another one."""
_FIRST: tuple[NotifyEvent, ...] = ("preempt", "lost", "fail", "end", "start")
"""The event by which a message calls a change that is several: the first of these."""
_LONGEST_REASON = 500
_LONGEST_NAME = 200


def events_of(before: Task, after: Task, *, goes_on: bool) -> frozenset[NotifyEvent]:
    """The events that this change is. `goes_on`: another try of the task follows, so that this is not its end.

    The members of a gang start together, which is one start: that of the first.
    """
    match after.status:
        case Running() if not _runs(before):
            gang = after.spec.gang
            return frozenset({"start"} if gang is None or gang.rank == 0 else ())
        case Lost() if not isinstance(before.status, Lost):
            return frozenset({"lost"})
        case Ended(state=state) if before.live:
            found: set[NotifyEvent] = {"preempt"} if str(state) == PREEMPTED else set()
            if not goes_on:
                found |= {"end", "fail"} if _failed(after) else {"end"}
            return frozenset(found)
        case _:
            return frozenset()


def speaker(task: Task, gang: Sequence[Task]) -> Task | None:
    """The task that a message after a change of this one is about; None if it is about nothing yet.

    The end of a gang is one end, when the last member has ended: that of the member that failed first, or of rank 0. So
    is its loss, when the first member is lost.
    """
    if isinstance(task.status, Ended):
        ends = [(one.status.ended_at, one) for one in gang if isinstance(one.status, Ended)]
        if len(ends) < len(gang):
            return None
        failed = [end for end in ends if _failed(end[1])]
        return min(failed, key=lambda end: end[0])[1] if failed else gang[0]
    if isinstance(task.status, Lost) and any(isinstance(one.status, Lost) for one in gang if one.id != task.id):
        return None
    return task


def notice_of(task: Task, events: frozenset[NotifyEvent], now: float, gang: Sequence[Task] = ()) -> Notice:
    """What messages have of a task after a change that is at least one of these events; `gang`: of all its members."""
    status, held = task.status, task.placement
    ended = status if isinstance(status, Ended) else None
    why = (why_all_end([task]) if gang else None) or (status.reason if isinstance(status, (Ended, Lost)) else None)
    return Notice(
        event=next(event for event in _FIRST if event in events),
        at=now,
        task=gang_key(task) or task.id,
        batch=cut(printable(task.batch), _LONGEST_NAME),
        owner=printable(task.owner),
        state=task.state,
        name=cut(printable(task.spec.name), _LONGEST_NAME) if task.spec.name else None,
        node=held.node if held else None,
        gpus=held.gpus if held else (),
        exit_code=ended.exit_code if ended else None,
        reason=cut(printable(why), _LONGEST_REASON) if why else None,
        started_at=status.started_at if isinstance(status, (Running, Paused, Lost, Ended)) else None,
        ended_at=ended.ended_at if ended else None,
        attempt=task.attempt,
        nodes=tuple(one.node for one in gang if one.node),
    )


def _runs(task: Task) -> bool:
    """Whether its container is known to have been started, and not to have ended."""
    return isinstance(task.status, (Running, Paused)) or (isinstance(task.status, Lost) and bool(task.container))


def _failed(task: Task) -> bool:
    """Whether it failed, or never started although nobody stopped it."""
    return task.state in FAILED or (task.state == "cancelled" and task.stop is None)
