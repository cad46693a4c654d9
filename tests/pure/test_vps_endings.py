"""When a VPS is stopped by itself, and that it is warned in time."""

from __future__ import annotations

import pytest

from agentless.model.tasks.terms import Terms
from agentless.rules.tasks.ending import ending_of, judge

HOUR = 3600.0


def test_it_has_no_end_without_a_limit_and_none_by_idleness_while_it_is_used():
    assert ending_of(Terms(), 0.0, 0.0) is None
    assert ending_of(Terms(idle_stop=HOUR), 0.0, None) is None


def test_the_earlier_end_counts():
    terms = Terms(expires=10 * HOUR, idle_stop=HOUR)
    assert ending_of(terms, 0.0, 2 * HOUR).at == 3 * HOUR
    assert ending_of(terms, 0.0, None).at == 10 * HOUR
    assert ending_of(terms, 0.0, 9.5 * HOUR).why == "--expires 10h 0m"


@pytest.mark.parametrize(("limit", "lead"), [(10 * HOUR, 900.0), (HOUR, 900.0), (120.0, 30.0)])
def test_it_is_warned_a_quarter_of_an_hour_before_or_a_quarter_of_the_time(limit, lead):
    ending = ending_of(Terms(expires=limit), 0.0, None)
    assert judge(ending, None, limit - lead - 1).what == "nothing"
    assert judge(ending, None, limit - lead).what == "warn"


def test_it_stops_no_sooner_after_a_late_warning_than_it_was_told():
    """The controller was away when the warning was due."""
    ending = ending_of(Terms(expires=HOUR), 0.0, None)
    assert judge(ending, None, 2 * HOUR).what == "warn"
    assert judge(ending, 2 * HOUR, 2 * HOUR + 899).what == "nothing"
    assert judge(ending, 2 * HOUR, 2 * HOUR + 900).what == "stop"


def test_who_uses_it_again_after_the_warning_is_told_that_it_goes_on():
    terms = Terms(idle_stop=HOUR)
    warned = judge(ending_of(terms, 0.0, 0.0), None, HOUR - 900).warned_at
    assert judge(ending_of(terms, 0.0, None), warned, HOUR - 800).what == "go on"
    assert judge(ending_of(terms, 0.0, HOUR - 850), warned, HOUR - 800).what == "go on"
