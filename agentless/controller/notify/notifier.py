"""Notifications: chooses the events, keeps them until they are sent, and sends them when it is time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from agentless.controller.in_thread import in_thread
from agentless.controller.notify.sending import send
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.tasks import Tasks
from agentless.errors import NotFound, NotSent, StateError
from agentless.inventory.inventory import Inventory
from agentless.model.nodes.check import Check
from agentless.model.notify import EVENTS, Digest, Notice, NotifyTarget
from agentless.model.tasks.task_id import next_try
from agentless.model.units import format_duration, thousands
from agentless.model.view import CheckView, NotifyView
from agentless.ports import Clock
from agentless.rules.notify.events import events_of, notice_of, speaker
from agentless.rules.notify.pace import HELD, KEPT, Pace
from agentless.rules.tasks.gangs.gangs import mates
from agentless.rules.views.nearest import nearest
from agentless.rules.views.publish import check_view, timestamp
from agentless.stores.records.notices import NoticeStore

SOON = 1.0
"""Seconds after an event in which more events may come into the same message."""
WARNED_AFTER = 3
"""Failures in succession after which every command warns."""
_DROPPED = "dropped, because no message could be sent in time"

_log = logging.getLogger(__name__)


class Notifier:
    """Sends messages to the targets of the inventory, at most one at a time to each. `trouble`: what cannot be sent."""

    def __init__(self, tasks: Tasks, store: NoticeStore, bus: EventBus, clock: Clock) -> None:
        self.targets: Mapping[str, NotifyTarget] = MappingProxyType({})
        self._tasks = tasks
        self._store = store
        self._clock = clock
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._dropped = 0
        self._unkept: str | None = None
        bus.subscribe(TaskChanged, self._changed)

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its targets. One that has changed is tried again at once."""
        for name in self._paces.keys() - {n for n, target in inventory.notify.items() if self.targets.get(n) == target}:
            del self._paces[name]
        self.targets = inventory.notify

    @property
    def busy(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._sending) or any(self._store.waiting[name] for name in self.targets)

    @property
    def trouble(self) -> str | None:
        """What could not be sent, and why; None if everything could, or may yet be."""
        now = self._clock.now()
        failing = [
            f"notify target {name}: {pace.problem}, for {format_duration(now - (pace.failing_since or now))}; "
            f"{thousands(self._store.waiting[name], 'event')} not sent yet; correct it, and try it with: "
            f"agentless notify test {name}"
            for name, pace in self._paces.items()
            if pace.failures >= WARNED_AFTER
        ]
        lost = [f"{thousands(self._dropped, 'event')} {_DROPPED}; see: agentless notify list"] if self._dropped else []
        return "; ".join([*failing, *lost, *filter(None, [self._unkept])]) or None

    def views(self) -> list[NotifyView]:
        """The targets as they are published, without their addresses."""
        return [self._view(target, self._paces[name]) for name, target in self.targets.items()]

    def checks(self) -> list[CheckView]:
        """What `doctor` says of targets whose last message could not be sent."""
        return [
            check_view(
                "controller",
                Check(
                    f"notify {name}",
                    "warning",
                    "",
                    f"{pace.problem}; {thousands(self._store.waiting[name], 'event')} not sent yet",
                    f"agentless notify test {name}",
                    "Nobody hears of the events of tasks there until a message can be sent.",
                    here=True,
                ),
            )
            for name, pace in self._paces.items()
            if pace.problem
        ]

    async def test(self, name: str) -> NotifyView:
        """Send a message that says that it is a test. Raises NotFound, or NotSent."""
        if (target := self.targets.get(name)) is None:
            known = ", ".join(self.targets) or "none; add one below notify: in the inventory"
            raise NotFound(f"no notify target {name[:80]!r}{nearest(name, self.targets)}; targets: {known}")
        now = self._clock.now()
        notice = Notice("test", now, "test", "test", self._tasks.owner, "test")
        try:
            await send(target, Digest(secrets.token_hex(8), (notice,), {"test": 1}))
        except NotSent as error:
            self._failed(name, str(error), error.put_off)
            raise NotSent(f"{name}: {error}") from None
        self._paces[name] = Pace(sent_at=self._clock.now())
        return self._view(target, self._paces[name])

    def tick(self) -> None:
        """Begin to send what is due."""
        self._soon = None
        if not any(name in self._store for name in (*self.targets, *self._store.waiting)):
            return
        now = self._clock.now()
        try:
            if dropped := self._store.prune(self.targets.keys(), now - KEPT):
                self._dropped += dropped
                _log.warning("%s %s", thousands(dropped, "event"), _DROPPED)
            for name, target in self.targets.items():
                if name in self._store and name not in self._sending and self._paces[name].is_due(now):
                    self._begin(target, now)
        except StateError as error:
            self._unkept = str(error)
        else:
            self._unkept = None

    async def close(self) -> None:
        """Stop. What is not sent is kept for the next controller."""
        if self._soon:
            self._soon.cancel()
        for sending in self._sending.values():
            sending.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        self._store.close()

    # ------------------------------------------------------------------ inside

    def _changed(self, change: TaskChanged) -> None:
        if not self.targets:
            return
        before, gang = change.before, mates(change.after, self._tasks.find)
        after = speaker(change.after, gang) if gang else change.after
        if after is None:
            return
        events = events_of(before, after, goes_on=not after.live and self._tasks.knows(next_try(after.id)))
        if not events:
            return
        now, chosen = self._clock.now(), after.spec.notify
        wanting = defaultdict[frozenset[str], list[str]](list)
        for name, target in self.targets.items():
            if target.hears_of(after.owner):
                wanting[events & (target.events if chosen is None else frozenset(chosen))].append(name)
        try:
            for wanted, names in wanting.items():
                if wanted:
                    self._store.add(names, notice_of(after, frozenset(e for e in EVENTS if e in wanted), now, gang))
        except StateError as error:
            self._unkept = str(error)
            raise
        if self._soon is None and any(wanting):
            self._soon = asyncio.get_running_loop().call_later(SOON, self.tick)

    def _begin(self, target: NotifyTarget, now: float) -> None:
        message = self._store.next_message(target.name, self._over(target.name), now - HELD)
        if message is not None:
            self._sending[target.name] = asyncio.create_task(self._send(target, message), name=f"notify {target.name}")

    def _over(self, target: str) -> set[str]:
        """The batches of its events of which no task is live."""
        batches = self._store.batches(target)
        return batches - {task.batch for task in self._tasks.live.values()} if batches else batches

    async def _send(self, target: NotifyTarget, message: str) -> None:
        name = target.name
        try:
            await send(target, await in_thread(self._store.digest, message))
            self._store.sent(message, self._over(name))
            if self._paces[name].failures:
                _log.info("notify target %s: sent again", name)
            self._paces[name] = self._paces[name].sent(self._clock.now())
            self._dropped = 0
        except (NotSent, StateError) as error:
            self._failed(name, str(error), getattr(error, "put_off", 0.0))
        except (TypeError, ValueError):
            self._drop(name, message)
        except Exception:  # noqa: BLE001 - tried again, and the others go on
            _log.exception("notify target %s: unexpected error", name)
            self._failed(name, "unexpected error; see controller.log", 0.0)
        finally:
            del self._sending[name]

    def _drop(self, name: str, message: str) -> None:
        """Drop a message that has no form for its target: no later try could send it, and others wait for it."""
        _log.warning("notify target %s: dropped a message that cannot be written", name, exc_info=True)
        try:
            self._store.sent(message, self._over(name))
        except StateError as error:
            self._failed(name, str(error), 0.0)

    def _failed(self, name: str, problem: str, put_off: float) -> None:
        if self._paces[name].problem != problem:
            _log.warning("notify target %s: %s", name, problem)
        self._paces[name] = self._paces[name].failed(self._clock.now(), problem, put_off)

    def _view(self, target: NotifyTarget, pace: Pace) -> NotifyView:
        return NotifyView(
            name=target.name,
            kind=target.kind,
            events=tuple(event for event in EVENTS if event in target.events),
            owners=target.owners,
            waiting=self._store.waiting[target.name],
            sent_at=timestamp(pace.sent_at),
            failing_since=timestamp(pace.failing_since),
            problem=pace.problem,
        )
