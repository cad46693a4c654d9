"""The event bus: who subscribes to an event is called at each of its kind, whatever becomes of the others."""

from __future__ import annotations

import asyncio

import pytest

from agentless.controller.state.event_bus import BACKLOG, EventBus, LaunchWanted, NodeObserved, TaskChanged
from agentless.model.nodes.cluster import Observation
from tests.pure.build import task

OBSERVED = NodeObserved("node1", Observation())


def broken(_: object) -> None:
    raise RuntimeError("broken for the test")


def test_subscribers_are_called_in_the_order_in_which_they_came() -> None:
    bus, calls = EventBus(), list[str]()
    bus.subscribe(NodeObserved, lambda event: calls.append(f"first: {event.node}"))
    bus.subscribe(NodeObserved, lambda event: calls.append(f"second: {event.node}"))
    bus.emit(OBSERVED)
    assert calls == ["first: node1", "second: node1"]


def test_a_subscriber_hears_of_its_kind_only() -> None:
    bus, heard = EventBus(), list[object]()
    bus.subscribe(TaskChanged, heard.append)
    for event in (OBSERVED, LaunchWanted(task()), changed := TaskChanged(task(), task(state="pending"))):
        bus.emit(event)
    assert heard == [changed]


def test_a_subscriber_that_fails_is_logged_and_keeps_no_other_from_its_event(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = EventBus(), list[object]()
    bus.subscribe(NodeObserved, broken)
    bus.subscribe(NodeObserved, heard.append)
    bus.emit(OBSERVED)
    assert heard == [OBSERVED]
    assert "node1: its sample: unexpected error" in caplog.text


def test_a_listener_that_is_too_slow_is_told_that_it_missed_news_and_goes_on_from_the_present() -> None:
    async def listen() -> list[object]:
        bus = EventBus()
        with bus.listen() as news:
            for number in range(BACKLOG + 3):
                bus.publish({"number": number})
            return [await anext(news), await anext(news)]

    assert asyncio.run(listen()) == [{"kind": "missed"}, {"number": BACKLOG + 2}]
