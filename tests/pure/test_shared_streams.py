"""One stream from a node for all who ask for the same: what each of them gets."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentless.controller.nodes.link import shared_streams
from agentless.controller.nodes.link.shared_streams import SharedStreams
from agentless.errors import NoAnswer, NoSession
from agentless.model.command import Command


class Node:
    """What is printed there is what a test puts into `printed`; `streams` is how many are open, and `begun` were."""

    def __init__(self, error: Exception | None = None) -> None:
        self.printed: list[asyncio.Queue] = []
        self.open = self.begun = 0
        self.exit_code = 0
        self._error = error

    @contextlib.asynccontextmanager
    async def stream(self, _command):
        self.begun += 1
        if self._error:
            raise self._error
        self.open += 1
        self.printed.append(asyncio.Queue())
        try:
            yield Stream(self, self.printed[-1])
        finally:
            self.open -= 1


class Stream:
    def __init__(self, node, printed):
        self.exit_code = None
        self._node, self._printed = node, printed

    def __aiter__(self):
        return self

    async def __anext__(self):
        data = await self._printed.get()
        if isinstance(data, Exception):
            raise data
        if data is None:
            self.exit_code = self._node.exit_code
            raise StopAsyncIteration
        return data


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def streams(node):
    return SharedStreams(node.stream)


@contextlib.asynccontextmanager
async def reading(streams, words="docker logs", tail=None):
    async with asyncio.timeout(30), streams.stream(Command(words), tail) as reader:
        yield reader


def put(node, *pieces, of=0):
    for piece in pieces:
        node.printed[of].put_nowait(piece)


async def test_who_comes_later_gets_all_of_it_from_the_same_stream(node, streams):
    async with reading(streams) as first:
        put(node, (1, b"a\n"), (2, b"b\n"))
        assert [await anext(first), await anext(first)] == [(1, b"a\n"), (2, b"b\n")]
        async with reading(streams) as second:
            put(node, (1, b"c\n"), None)
            assert [piece async for piece in second] == [(1, b"a\n"), (2, b"b\n"), (1, b"c\n")]
            assert [piece async for piece in first] == [(1, b"c\n")]
            assert (second.exit_code, first.exit_code) == (0, 0)
    assert (node.begun, node.open) == (1, 0)


async def test_it_goes_on_for_those_who_stay(node, streams):
    async with reading(streams) as stays:
        async with reading(streams):
            pass
        put(node, (1, b"x"))
        assert await anext(stays) == (1, b"x")
        assert node.open == 1
    assert node.open == 0


async def test_what_is_asked_for_otherwise_is_another_stream(node, streams):
    async with reading(streams), reading(streams, "docker logs --tail 3"):
        assert node.begun == 2


@pytest.mark.parametrize(("tail", "begun"), [(2, 2), (3, 1)])
async def test_the_last_lines_are_shared_while_they_are_all_there_is(node, streams, tail, begun):
    async with reading(streams, tail=tail) as first:
        put(node, (1, b"a\nb\n"))
        await anext(first)
        async with reading(streams, tail=tail):
            assert node.begun == begun


async def test_what_is_no_longer_kept_whole_is_another_stream(node, streams):
    async with reading(streams) as first:
        put(node, (1, bytes(shared_streams.KEPT)), (1, b"x"))
        assert [len((await anext(first))[1]) for _ in range(2)] == [shared_streams.KEPT, 1]
        async with reading(streams):
            assert node.begun == 2


async def test_an_end_that_was_reached_is_not_joined(node, streams):
    async with reading(streams) as first:
        put(node, None)
        assert [piece async for piece in first] == []
        async with reading(streams):
            assert node.begun == 2


async def test_why_it_cannot_begin_is_told_to_all(streams):
    streams = SharedStreams(Node(NoSession("full")).stream)

    async def read():
        async with reading(streams):
            pass

    results = await asyncio.gather(read(), read(), return_exceptions=True)
    assert [type(result) for result in results] == [NoSession] * 2


async def test_why_it_broke_is_told_to_all_after_what_came_before(node, streams):
    async with reading(streams) as first, reading(streams) as second:
        put(node, (1, b"x"), NoAnswer("broken"))
        for reader in (first, second):
            assert await anext(reader) == (1, b"x")
            with pytest.raises(NoAnswer, match="broken"):
                await anext(reader)


async def test_the_only_reader_may_take_his_time_and_the_node_waits(node, streams, monkeypatch):
    monkeypatch.setattr(shared_streams, "SLOW", 0.01)
    async with reading(streams) as reader:
        put(node, *[(1, bytes(shared_streams.KEPT // 2))] * 8, None)
        await asyncio.sleep(0.1)
        assert node.printed[0].qsize() >= 5
        assert len([piece async for piece in reader]) == 8


async def test_who_keeps_others_waiting_is_told_so_and_they_go_on(node, streams, monkeypatch):
    monkeypatch.setattr(shared_streams, "SLOW", 0.05)
    async with reading(streams) as fast, reading(streams) as slow:
        put(node, *[(1, bytes(shared_streams.KEPT // 2))] * 8, None)
        assert len([piece async for piece in fast]) == 8
        with pytest.raises(NoAnswer, match="too slowly while others follow it"):
            async for _ in slow:
                pass
