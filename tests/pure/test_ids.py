"""Task ids: short, unique, sorted by time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.tasks.task_id import new_task_id, next_try, previous_try
from tests.pure.build import CID, NOW, container, placement, task


def test_an_id_is_eleven_characters_that_cannot_be_misread() -> None:
    assert re.fullmatch(r"[0-9a-hj-km-np-tv-z]{11}", new_task_id(NOW))


BEGIN = 1_704_067_200.0
"""2024-01-01."""


@pytest.mark.parametrize(("seconds", "digits"), [(0, "00000000"), (1, "000000z8"), (86400, "002jcq00")])
def test_an_id_begins_with_the_milliseconds_since_2024(seconds: float, digits: str) -> None:
    assert new_task_id(BEGIN + seconds)[:8] == digits


@pytest.mark.parametrize(("seconds", "digits"), [(0, "000000z9"), (1, "000000z9"), (86400, "002jcq00")])
def test_an_id_tells_the_time_also_after_another_one_unless_that_is_later(seconds: float, digits: str) -> None:
    assert new_task_id(BEGIN + seconds, "000000z8abc")[:8] == digits


def test_ids_of_one_moment_differ_across_controllers() -> None:
    assert len({new_task_id(NOW) for _ in range(100)}) > 90


@given(st.floats(1_704_067_201, 2_600_000_000), st.floats(0.002, 1e6))
def test_a_later_id_sorts_after_an_earlier_one(now: float, later: float) -> None:
    assert new_task_id(now) < new_task_id(now + later)


@given(st.lists(st.floats(-3600, 3600), min_size=2, max_size=20))
def test_ids_of_one_controller_rise_even_when_its_clock_goes_back(steps: list[float]) -> None:
    ids = [""]
    for step in steps:
        ids.append(new_task_id(NOW + step, ids[-1]))
    assert ids == sorted(set(ids))


def test_the_try_before_is_the_one_whose_next_it_is() -> None:
    tries = ["2mz3k8d4f1q"]
    for _ in range(3):
        tries.append(next_try(tries[-1]))
    assert [previous_try(each) for each in tries[1:]] == tries[:-1]


def test_a_place_is_written_as_it_would_be_typed() -> None:
    assert [str(placement(target)) for target in ("node1::0,1", "node1")] == ["node1::0,1", "node1"]


def test_a_container_is_called_by_its_id_and_by_its_name_as_long_as_none_is_known() -> None:
    assert [task(state=state).container_ref for state in ("running", "assigning")] == [CID, "agentless-t1"]


def test_a_container_whose_name_is_not_trusted_is_called_by_twelve_digits_also_on_the_node_itself() -> None:
    unit = container(task(), id="agentless-t1.service")
    assert container(task()).short_id == CID[:12]
    assert re.fullmatch("[0-9a-f]{12}", unit.short_id)
