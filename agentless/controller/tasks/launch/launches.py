"""Launches on one node: those that come at about the same time are one script, which takes the node's lock once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.ownership import Ownership
from agentless.errors import Refused
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.ports import Engine

PACE = 0.05
"""Seconds between two launch scripts of one node: those that come meanwhile are one. The first goes at once."""
SCRIPTS = 2
"""Launch scripts that are under way on one node at most. Each occupies one of the shells of its session."""
WAIT = 30.0
"""Seconds without an answer after which nobody waits for a turn any more: a start that hangs keeps its script busy.

A script that waits for the node's lock has answered by then."""
_STUCK = "{}: earlier launches have not finished after {:g} s; check why containers do not start there"


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """A launch that waits, and where its answer goes."""

    link: TaskLink
    runtime: Engine
    launch: Launch
    answer: asyncio.Future[Result]

    def goes_with(self, other: _Wanted) -> bool:
        """Whether one script can do both."""
        same_place = self.link is other.link and self.runtime is other.runtime
        return same_place and self.launch.secrets == other.launch.secrets


class Launches:
    """The launches of one node, in the order in which they came. `placed` are the tasks of a batch that have places."""

    def __init__(self, ownership: Ownership, placed: Callable[[str], Collection[str]]) -> None:
        self._ownership = ownership
        self._placed = placed
        self._waiting: list[_Wanted] = []
        self._sending: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()

    async def run(self, link: TaskLink, runtime: Engine, launch: Launch) -> Result:
        """The answer to a launch. Raises NoAnswer, Refused, or what is wrong with the launch itself."""
        wanted = _Wanted(link, runtime, launch, asyncio.get_running_loop().create_future())
        self._waiting.append(wanted)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await wanted.answer

    async def _send(self) -> None:
        while self._waiting:
            if len(self._under_way) >= SCRIPTS:
                await self._turn()
                continue
            first = self._waiting[0]
            some = _together(first, [each for each in self._waiting if each.goes_with(first)])
            taken = set(some)
            self._waiting = [each for each in self._waiting if each not in taken]
            script = asyncio.create_task(self._run(some))
            self._under_way.add(script)
            script.add_done_callback(self._ended)
            await asyncio.sleep(PACE)
        self._sending = None

    def _ended(self, script: asyncio.Task[None]) -> None:
        self._under_way.discard(script)
        self._answered.set()

    async def _turn(self) -> None:
        """Wait for an answer, or refuse those that wait: nothing of them has been sent."""
        self._answered.clear()
        try:
            async with asyncio.timeout(WAIT):
                await self._answered.wait()
        except TimeoutError:
            stuck, self._waiting = self._waiting, []
            for each in stuck:
                if not each.answer.done():
                    each.answer.set_exception(Refused(_STUCK.format(each.link.node.name, WAIT)))

    async def _run(self, some: Sequence[_Wanted]) -> None:
        first, answers = some[0], [each.answer for each in some]

        def heard(out: bytes) -> None:
            """Each has its answer as soon as it is there: what another one starts may hang."""
            for at, result in first.runtime.answered(len(some), out).items():
                if not answers[at].done():
                    answers[at].set_result(result)
                    self._answered.set()

        try:
            command = first.runtime.launches(self._limited(some))
        except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
            if len(some) > 1:  # what is wrong with one of them concerns no other
                for each in some:
                    await self._run([each])
            elif not first.answer.done():
                first.answer.set_exception(error)
            return
        try:
            self._ownership.check()
            results = first.runtime.answers(len(some), await first.link.run(command, heard))
        except Exception as error:  # noqa: BLE001 - raised where the answers are waited for
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)
            return
        for answer, result in zip(answers, results, strict=True):
            if not answer.done():
                answer.set_result(result)

    def _limited(self, some: Sequence[_Wanted]) -> list[Launch]:
        """The launches of a script; of limited batches those on a cluster, with their limits.

        A whole batch is one array, which the cluster limits. Else only as many may start as the limit leaves beside
        the others that may have been launched.
        """
        launches = [each.launch for each in some]
        if not isinstance(some[0].link, ClusterLink):
            return launches
        ids = {each.launch.task.id for each in (*some, *self._waiting)}
        counts = Counter(each.task.batch for each in launches if each.task.spec.terms.max_parallel is not None)
        others = {batch: len(set(self._placed(batch)) - ids) for batch in counts}
        begun = Counter[str]()
        for at, each in enumerate(launches):
            batch, most = each.task.batch, each.task.spec.terms.max_parallel
            if most is None:
                continue
            begun[batch] += 1
            if not others[batch] and counts[batch] > most:
                launches[at] = replace(each, limit=most)
            elif begun[batch] > most - others[batch]:
                launches[at] = replace(each, limit=0)
        return launches


def _together(first: _Wanted, fitting: Sequence[_Wanted]) -> Sequence[_Wanted]:
    """Those of the launches that go in the script of the first one: many of its batch, or some of any."""
    runtime, batch = first.runtime, [each for each in fitting if each.launch.task.batch == first.launch.task.batch]
    return batch[: runtime.of_a_batch] if len(batch) > runtime.at_once else fitting[: runtime.at_once]
