"""The connections to one node, and which of them gives the next session: a server allows so many on each.

OpenSSH allows 10 (MaxSessions). What a server allows is found out by asking: a session beyond is refused. Then another
connection is opened, up to `CONNECTIONS`. Some sessions are kept for the controller itself, see `kept`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from agentless.errors import AgentlessError, NoSession, Refused, Unreachable
from agentless.model.nodes.sessions import Sessions
from agentless.model.terminal import Size
from agentless.ports import Shell, Terminal

CONNECTIONS = 4
"""Connections to one node at once."""
SINGLES = 10
"""The same where a connection gives only one session."""
KEPT = 6
"""Sessions that the controller has in use at most, most of the time: samples, events, short commands, a kept log."""
WAIT = 15.0
"""Seconds to wait for a free session."""
START_WITHIN = 20.0
"""Seconds in which a server must have started a session."""
IDLE = 60.0
"""Seconds after which a further connection without a session is closed."""
ALONE = 60.0
"""Seconds before another connection is tried again after the node did not give one."""
PAUSE = 0.2, 5.0
"""Seconds before a connection that refused a session is asked again: at first, and at most.

A server counts a session until what ran in it has ended, which is later than we have closed it."""

TRIES = 3
"""How often a session is asked for that is given and runs nothing: dropbear now and then closes a new one, when another
one ends in the same moment."""

_log = logging.getLogger(__name__)


class NotStarted(Exception):
    """The server has given a session, and run nothing in it; the message is for the user."""


class ChannelRefused(Exception):
    """The connection holds, and the server gives no further session on it."""


class Connection(Protocol):
    """A login on one machine, as an SSH library gives it."""

    @property
    def alive(self) -> bool:
        """Whether it still holds, as far as is known."""

    @property
    def single(self) -> bool:
        """Whether the server gives it one session, and no second one after that."""

    async def shell(self, closed: Callable[[], None]) -> Shell:
        """As `Transport.shell`; raises ChannelRefused. `closed` is called when it has been closed."""

    async def terminal(self, closed: Callable[[], None], script: str, size: Size) -> Terminal:
        """As `Transport.terminal`; likewise."""

    async def close(self) -> None:
        """End it, whatever is left of it. Never raises."""


C = TypeVar("C", bound=Connection)
C_co = TypeVar("C_co", bound=Connection, covariant=True)
S = TypeVar("S")


class Login(Protocol[C_co]):
    """A connection that is made when it is wanted."""

    @property
    def alive(self) -> bool:
        """Whether it holds now."""

    async def open(self) -> C_co:
        """Make it, or give it when it holds."""

    async def close(self) -> None:
        """End it. Never raises."""


def kept(total: int) -> int:
    """How many of all sessions that a node gives are kept for the controller; the others are for users.

    It needs one, does better with three (commands, events, samples), and leaves users at least one where there are two.
    """
    return max(1, min(KEPT, max(3, total // 2), total - 1))


@dataclass(eq=False)
class _Slot:
    """A requested session: its number in order, whether it is the controller's own, and whether it has started."""

    number: int
    own: bool
    live: bool = False


@dataclass(eq=False)
class _Member(Generic[C]):
    """A connection of a pool. Before `ask_at` it is not asked for a session, since it has refused one."""

    login: Login[C]
    slots: list[_Slot] = field(default_factory=list)
    taken: int = 0
    worked: bool = False
    ask_at: float = -math.inf
    pause: float = PAUSE[0]

    def take(self, own: bool) -> _Slot:
        """Reserve a session that is about to be requested."""
        self.taken += 1
        self.slots.append(_Slot(self.taken, own))
        return self.slots[-1]


class Pool(Generic[C]):
    """The connections to the node that messages call `name`; `login` gives one that is not yet opened."""

    def __init__(self, name: str, login: Callable[[], Login[C]]) -> None:
        self._name = name
        self._login = login
        self._first = _Member(login())
        self._members = [self._first]
        self._single = False
        self._most = 0
        self._each: int | None = None
        self._alone, self._alone_until = False, -math.inf
        self._growing: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether its first connection holds: without that one it is broken. Single ones come and go."""
        if not self._single:
            return self._first.login.alive
        return any(member.login.alive for member in self._members) or not (self._members or self._alone)

    @property
    def sessions(self) -> Sessions:
        """What is in use, and what there is as far as it is known."""
        used = sum(len(member.slots) for member in self._members)
        return Sessions(len(self._members), used, self._each, self._total)

    async def open(self) -> None:
        """Connect."""
        self._single = (await self._first.login.open()).single
        if self._single:
            self._each = 1

    async def session(
        self, start: Callable[[C, Callable[[], None]], Awaitable[S]], *, own: bool = False, wait: bool = True
    ) -> S:
        """Start a session on one of the connections; `own` are those of the controller itself.

        Raises NoSession when none is free, with `wait` only after a while.
        """
        deadline, failed = self._now + WAIT, 0
        while True:
            member = await self._with_free_session(own=own, wait=wait)
            if not self.alive:
                raise Unreachable(f"{self._name} closed the connection")
            if member is None:
                if not wait or self._now >= deadline:
                    raise NoSession(self._full())
                await self._news(deadline)
                continue
            slot = member.take(own)
            try:
                async with asyncio.timeout(START_WITHIN):
                    session = await start(await member.login.open(), partial(self._end, member, slot))
            except ChannelRefused as error:
                self._refused(member, slot, error)
            except NotStarted as error:
                self._end(member, slot)
                failed += 1
                if failed == TRIES:
                    raise Refused(str(error)) from None
            except Unreachable:
                self._end(member, slot)
                if member.worked or member is self._first:
                    raise
                self._let_go(member)
            except BaseException:
                self._end(member, slot)
                raise
            else:
                self._started(member, slot)
                return session

    async def close(self) -> None:
        """End all of them. Never raises."""
        self._closed = True
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.wait([self._growing])
        await asyncio.gather(*(member.login.close() for member in self._members), *self._closing)
        self._tell()

    # ------------------------------------------------------------------ which one

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def _may_grow(self) -> bool:
        return self.alive and len(self._members) < self._connections and self._now >= self._alone_until

    @property
    def _connections(self) -> int:
        return SINGLES if self._single else CONNECTIONS

    @property
    def _total(self) -> int | None:
        """Sessions that the node gives at all, None as long as it has refused none."""
        if self._each is None:
            return None
        return self._each * (len(self._members) if self._alone else self._connections)

    async def _with_free_session(self, *, own: bool, wait: bool) -> _Member[C] | None:
        """A connection to ask for a session, a new one if need be."""
        while True:
            for member in self._members[1:]:
                if not (self._single or member.login.alive):
                    self._let_go(member)
            again = self._alone and self._may_grow
            if self._are_enough(own=own, wait=wait) and not again:
                return None
            if found := self._free():
                return found
            if not self._may_grow:
                return self._doubtful()
            self._growing = self._growing or asyncio.create_task(self._grow())
            await asyncio.wait([self._growing])

    def _are_enough(self, *, own: bool, wait: bool) -> bool:
        """Whether those who ask have their share. The controller may have more, where it would wait for it."""
        total = self._total
        if total is None or (own and wait):
            return False
        used = sum(slot.own == own for member in self._members for slot in member.slots)
        return used >= (kept(total) if own else total - kept(total))

    def _free(self) -> _Member[C] | None:
        """A connection with a free session, as far as is known."""
        for member in self._members:
            if member.ask_at <= self._now and (self._each is None or len(member.slots) < self._each):
                return member
        return None

    def _doubtful(self) -> _Member[C] | None:
        """One that should be full, to ask it now and then: what was ending counted when it refused a session."""
        for member in self._members:
            if member.ask_at <= self._now:
                member.ask_at = self._now + PAUSE[1]
                return member
        return None

    async def _grow(self) -> None:
        member = _Member(self._login())
        try:
            await member.login.open()
            self._members.append(member)
            self._alone = False
        except AgentlessError as error:
            _log.info("%s: cannot open another connection: %s", self._name, error)
        finally:
            self._growing = None
            if member not in self._members:
                self._be_alone()
                await member.login.close()

    async def _news(self, deadline: float) -> None:
        """Wait until something has changed, or a connection may be asked again."""
        later = [member.ask_at for member in self._members if member.ask_at > self._now]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min([deadline, *later])):
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _full(self) -> str:
        if self._total == 1:
            return (
                f"{self._name} allows 1 SSH session, and the controller needs it; raise MaxSessions in its sshd_config"
            )
        users = sum(not slot.own for member in self._members for slot in member.slots)
        if self._single:
            return (
                f"{self._name} has no free SSH session: logs, shells and copies use {users}; end one of them, or use "
                "OpenSSH there, which gives 10 on a connection"
            )
        return (
            f"{self._name} has no free SSH session: logs, shells and copies use {users}; end one of them, or raise "
            "MaxSessions in its sshd_config"
        )

    # ------------------------------------------------------------------ what becomes of it

    def _started(self, member: _Member[C], slot: _Slot) -> None:
        slot.live, member.worked = True, True
        member.ask_at, member.pause = -math.inf, PAUSE[0]
        self._most = max(self._most, sum(other.live for other in member.slots))
        if self._each is not None:
            self._each = max(self._each, self._most)
        self._tell()

    def _refused(self, member: _Member[C], slot: _Slot, error: ChannelRefused) -> None:
        """Those before it were given: a server answers in the order in which it is asked."""
        before = sum(other.number < slot.number for other in member.slots)
        self._end(member, slot)
        if before or self._most:
            self._each = max(before, self._most)
            member.ask_at = self._now + member.pause
            member.pause = min(2 * member.pause, PAUSE[1])
        if not before and not member.worked:
            if member is self._first:
                why = f"{self._name} cannot open an SSH session ({error})"
                raise NoSession(f"{why}; raise MaxSessions in its sshd_config") from None
            self._let_go(member)

    def _end(self, member: _Member[C], slot: _Slot) -> None:
        if slot not in member.slots:
            return
        member.slots.remove(slot)
        member.ask_at = -math.inf
        if self._single:
            self._drop(member)
        elif member is not self._first and not member.slots:
            asyncio.get_running_loop().call_later(IDLE, self._retire, member, member.taken)
        self._tell()

    def _retire(self, member: _Member[C], taken: int) -> None:
        if member.taken == taken and not self._closed:
            self._drop(member)

    def _let_go(self, member: _Member[C]) -> None:
        """Drop a connection that broke or never worked."""
        self._be_alone()
        self._drop(member)

    def _be_alone(self) -> None:
        """Count on no further connection from now on, and try none for a while."""
        self._alone, self._alone_until = True, self._now + ALONE

    def _drop(self, member: _Member[C]) -> None:
        if member in self._members:
            self._members.remove(member)
            closing = asyncio.create_task(member.login.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._tell()
