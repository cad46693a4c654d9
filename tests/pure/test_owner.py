"""Whose a task is."""

from __future__ import annotations

import pytest

from agentless.errors import UsageError
from agentless.model.owner import check_owner, owner_of


@pytest.mark.parametrize("name", ["ann", "ann@laptop", "a.b_c-d@lab.example", "7", "a" * 127])
def test_a_name_is_taken_as_it_is(name):
    assert check_owner(name, "--owner") == name


@pytest.mark.parametrize("name", ["", "-ann", "ann smith", "ann\n", "é", "a" * 128, "@laptop"])
def test_what_is_no_name_is_refused_with_who_said_it(name):
    with pytest.raises(UsageError, match=r"^AGENTLESS_OWNER '.*use up to 127 letters"):
        check_owner(name, "AGENTLESS_OWNER")


def test_a_variable_says_whose_the_tasks_are_and_an_empty_one_says_nothing():
    assert owner_of({"AGENTLESS_OWNER": "ann"}) == "ann"
    assert owner_of({"AGENTLESS_OWNER": ""}) is owner_of({}) is None
    with pytest.raises(UsageError, match=r"^\$AGENTLESS_OWNER 'ann smith'"):
        owner_of({"AGENTLESS_OWNER": "ann smith"})
