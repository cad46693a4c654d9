"""What the people of the demo do fits the nodes that there are, however many."""

from __future__ import annotations

from collections import Counter

import pytest

from agentless.cli.setup.people import LATER, SICK, is_away, opening, sizes
from agentless.demo.fleet import demo_plans
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 12, 100])
def test_each_task_of_the_opening_has_gpus_that_nobody_else_has(nodes):
    plans = {plan.name: plan for plan in demo_plans([int(size) if size != "mig" else "mig" for size in sizes(nodes)])}
    taken = Counter()
    for wish in opening(nodes):
        needs = parse_target(wish.target)
        plan = plans[needs.node]
        taken.update((needs.node, str(number)) for number in needs.indices)
        for number in needs.indices:
            usable = len(plan.slices) if plan.slices else plan.gpus - plan.foreign
            assert int(str(number).rpartition("/")[2]) < usable, wish
    assert len(plans) == nodes
    assert max(taken.values()) == 1
    assert not {("node1", "0"), ("node1", "1")} & taken.keys(), "they are for who watches"
    assert nodes == 1 or tuple(SICK.split("::")) not in taken


@pytest.mark.parametrize("nodes", [1, 4, 100])
def test_each_task_has_a_name_of_its_own_and_a_spec(nodes):
    wishes = [*opening(nodes), *LATER]
    assert len({wish.name for wish in wishes}) == len(wishes)
    for wish in wishes:
        TaskSpec(("train", *wish.command.split()), needs=parse_target(wish.target), name=wish.name)


def test_a_node_leaves_for_a_minute_and_comes_back_again_and_again():
    away = [is_away(float(second)) for second in range(1300)]
    changes = [second for second in range(1, 1300) if away[second] != away[second - 1]]
    assert not away[0]
    assert changes == [100, 160, 460, 520, 820, 880, 1180, 1240]
