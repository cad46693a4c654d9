"""What people and fate may do in `test_truth.py`, and how often."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

NODES = {"n1": 2, "n2": 2, "n3": 1}
"""Their GPUs."""
AHEAD = {"n1": 0.0, "n2": -5 * 3600.0, "n3": 3 * 3600.0}
"""Seconds by which their clocks are ahead from the beginning."""
COMMANDS = {
    "done": ["true"],
    "fails": ["sh", "-c", "exit 3"],
    "soon": ["sh", "-c", "sleep 0.3; exit 4"],
    "later": ["sh", "-c", "sleep 1.5; exit 5"],
    "secret": ["sh", "-c", "sleep 0.1; exit $CODE"],
    "wrong": ["no-such-program"],
    "stays": ["sleep", "1000"],
    "bows": ["sh", "-c", 'trap "exit 9" TERM; sleep 1000 & wait'],
}
PEOPLE = {"ann": 60.0, "bob": 3.0}
"""Seconds between two full looks of their controllers: ann's has to hear of everything by itself, and bob's looks so
often that a look meets whatever is under way."""
CHANGES = ["stop", "kill", "pause", "resume", "rm", "rm --force"]
ANSWERS = ["ps", "inspect", "kill", "pause", "unpause", "rm", "info"]
MOMENTS = ["before", "after"]
HANDS = ["rm", "kill", "stop", "pause", "unpause", "rename", "restart", "start"]

Step = tuple[str, dict[str, Any]]
"""A method of the machine and its arguments."""


def target(node: str) -> st.SearchStrategy[str]:
    """The node with any of its GPUs, or with none."""
    gpus = st.sets(st.integers(0, NODES[node] - 1)).map(sorted)
    return gpus.map(lambda numbers: f"{node}::{','.join(map(str, numbers))}" if numbers else node)


def does(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """A method of the machine with any of these arguments."""
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


def mix(*parts: tuple[int, st.SearchStrategy[Step]]) -> st.SearchStrategy[Step]:
    """Each part as often as its number says: `st.one_of` takes apart what is itself such a choice."""
    return st.sampled_from([part for often, part in parts for _ in range(often)]).flatmap(lambda part: part)


person, node, pick = st.sampled_from(list(PEOPLE)), st.sampled_from(list(NODES)), st.integers(0, 5)
targets = st.lists(node, min_size=1, max_size=2, unique=True).flatmap(lambda names: st.tuples(*map(target, names)))

ASKED = mix(
    (3, does("submit", person=person, targets=targets, command=st.sampled_from(list(COMMANDS)), queue=st.booleans())),
    (2, does("change", person=person, verb=st.sampled_from(CHANGES), pick=pick)),
    (1, does("race", targets=targets)),
)
FATE = mix(
    (3, does("crash", person=person)),
    (2, does("lose_answer", node=node, verb=st.sampled_from(["create", "start"]), moment=st.sampled_from(MOMENTS))),
    (2, does("lose_answer", node=node, verb=st.sampled_from(ANSWERS), moment=st.sampled_from(MOMENTS))),
    (6, does("by_hand", verb=st.sampled_from(HANDS), pick=pick)),
    (2, does("cut", node=node)),
    (2, does("reboot", node=node)),
    (2, does("stop_engine", node=node, live_restore=st.booleans())),
    (2, does("jump", node=node, hours=st.sampled_from([-9, -1, 0, 2, 7]))),
    (1, does("strike", person=person, node=node)),
    (1, does("swap", person=person, node=node, other=node)),
    (1, does("forget", person=person)),
    (1, does("forsake", person=person, node=node)),
)
# Not rules of their own: of those Hypothesis leaves out some in each run, and there are few runs.
STEPS = mix(
    (3, ASKED),
    (2, FATE),
    (3, does("amid", asked=ASKED, moment=st.floats(0, 0.25), fate=FATE)),
    (2, does("mend", node=node)),
    (1, does("settle")),
)
