"""Places in the queue that were given by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.tasks.task import Rank, Task
from agentless.model.tasks.task_event import Assigned, Moved, Unplaced
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.scheduling.rank import ranks_after_move
from agentless.rules.tasks.lifecycle import apply
from tests.pure.build import NOW, cluster, placement, seen, task
from tests.pure.test_order import names, waits
from tests.pure.test_plan import POLICIES, promises, runs, wish


class Line:
    """A queue and what is done to it."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks = {one.id: one for one in tasks}

    @property
    def queue(self) -> list[Task]:
        return order(self.tasks.values())

    def ranks_after_move(self, name: str, position: int) -> None:
        for moved, rank in ranks_after_move(self.queue, self.tasks[name], position).items():
            self.tasks[moved] = apply(self.tasks[moved], Moved(rank), NOW)

    def __str__(self) -> str:
        return names(self.queue)


def line(text: str) -> Line:
    """Tasks of these names, the oldest first."""
    return Line(*(waits(name, age) for age, name in enumerate(reversed(text.split()))))


def test_the_top_is_in_front_of_all_whatever_their_priority() -> None:
    queue = line("a b c")
    queue.tasks["urgent"] = waits("urgent", 0, 100)
    queue.ranks_after_move("c", 1)
    assert str(queue) == "c urgent a b"


def test_who_is_moved_later_has_the_last_word() -> None:
    queue = line("a b c")
    queue.ranks_after_move("b", 1)
    queue.ranks_after_move("c", 1)
    assert str(queue) == "c b a"


def test_who_was_moved_is_next_when_those_in_front_have_left() -> None:
    queue = line("a b c d")
    queue.ranks_after_move("d", 2)
    assert str(queue) == "a d b c"
    del queue.tasks["a"]
    assert str(queue) == "d b c"


def test_who_comes_new_with_a_high_priority_overtakes_those_that_were_not_moved() -> None:
    queue = line("a b c d")
    queue.ranks_after_move("d", 2)
    queue.ranks_after_move("c", 1)
    queue.tasks["urgent"] = waits("urgent", 0, 100)
    assert str(queue) == "c urgent a d b"


def test_one_may_be_moved_to_the_end() -> None:
    queue = line("a b c")
    queue.ranks_after_move("a", 3)
    assert str(queue) == "b c a"
    queue.tasks["d"] = waits("d", -1)
    assert str(queue) == "b c a d"


def test_who_stood_behind_one_that_is_moved_away_stays_where_it_is() -> None:
    """Although it was put there behind that one alone, and somebody urgent has come since."""
    queue = line("a b c")
    queue.ranks_after_move("c", 2)
    queue.tasks["urgent"] = waits("urgent", 0, 100)
    assert str(queue) == "urgent a c b"
    queue.ranks_after_move("a", 4)
    assert str(queue) == "urgent c b a"


def test_only_who_is_moved_is_ranked_where_the_others_stay_in_their_order_without() -> None:
    queue = line("a b c d")
    queue.ranks_after_move("d", 1)
    queue.ranks_after_move("c", 1)
    assert ranks_after_move(queue.queue, queue.tasks["a"], 1).keys() == {"a"}


@pytest.mark.parametrize("position", [0, -1, 3])
def test_a_position_that_is_not_there_is_refused_with_those_that_are(position: int) -> None:
    with pytest.raises(UsageError, match=f"position {position} is out of range: 2 tasks are pending; use 1 to 2"):
        line("a b").ranks_after_move("a", position)


def test_the_place_survives_a_node_that_refuses() -> None:
    rank = Rank(("t9",), 1)
    moved = apply(task("t1", state="pending"), Moved(rank), NOW)
    again = apply(apply(moved, Assigned(placement()), NOW), Unplaced("taken"), NOW)
    assert (again.state, again.rank) == ("pending", rank)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """A queue in which some have come, were moved, and have left."""
    queue = Line()
    for number in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(["comes", "comes", "moves", "moves", "leaves"]))
        if what == "comes" or not queue.tasks:
            age, priority = draw(st.integers(0, 9)), draw(st.integers(-1, 1))
            new = waits(f"t{number}", age, priority, owner=draw(st.sampled_from(["ann", "bob"])))
            queue.tasks[new.id] = new
        elif what == "leaves" and len(queue.tasks) > 1:
            del queue.tasks[draw(st.sampled_from(sorted(queue.tasks)))]
        else:
            queue.ranks_after_move(draw(st.sampled_from(sorted(queue.tasks))), draw(st.integers(1, len(queue.tasks))))
    return queue


def ids(tasks: Iterable[Task]) -> list[str]:
    return [one.id for one in tasks]


@given(lines(), st.data())
def test_who_is_moved_to_a_position_is_there_and_the_others_keep_their_order(queue: Line, data: st.DataObject) -> None:
    before = ids(queue.queue)
    name, position = data.draw(st.sampled_from(before)), data.draw(st.integers(1, len(before)))
    queue.ranks_after_move(name, position)
    after = ids(queue.queue)
    assert after.index(name) == position - 1
    assert [one for one in after if one != name] == [one for one in before if one != name]


@given(lines())
def test_everybody_is_in_the_queue_once_whoever_was_moved(queue: Line) -> None:
    assert sorted(ids(queue.queue)) == sorted(queue.tasks)


@given(lines())
def test_without_their_ranks_they_are_in_the_computed_order(queue: Line) -> None:
    plain = [replace(one, rank=None) for one in queue.tasks.values()]
    kept = [one.id for one in queue.queue if not one.rank]
    assert [one.id for one in order(plain) if one.id in kept] == kept


def test_who_is_put_in_front_is_promised_what_those_behind_were_promised() -> None:
    """As the scheduler does it: what was moved counts as new in the next look."""
    busy = cluster(seen(gpus=2), (runs("t1", "node1::0", 0, 10), runs("t2", "node1::1", 0, 20)))
    queue = [wish("a", limit=50), wish("b", limit=50), wish("large", "2x", 50)]
    first = plan(busy, queue, NOW, POLICIES)
    assert promises(first)["large"] == ("node1", 70)
    left = {name: promise for name, promise in first.promises.items() if name != "large"}
    again = plan(busy, [queue[2], *queue[:2]], NOW, POLICIES, Plan({}, left))
    assert promises(again) == {"large": ("node1", 20), "a": ("node1", 10 + 60), "b": ("node1", 70)}
