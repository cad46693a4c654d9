"""The Python API given anything: what is of no use is told by an error of ours, and never by a traceback."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from agentless import AgentlessError, Cluster, Task, UsageError
from agentless.api.batch import Batch
from agentless.api.verb import StreamVerb, Verb
from agentless.demo.fleet import NodePlan
from tests.fleet.inhabited import inhabited

ANYTHING = [
    5, -1, 0.5, math.nan, math.inf, 10**400, True, b"x", "", "x", "a/b", "\0", "\ud800", [], [5], ["a", None], {},
    {1: 2}, object(), len, date(2026, 5, 1), timedelta(-1), timedelta.max, datetime(9999, 12, 31, tzinfo=UTC), None,
]  # fmt: skip
ENDLESS = {"follow", "wait", "command"}
"""These would wait for ever, or start something, when they are given what they take."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with inhabited(tmp_path_factory.mktemp("api"), [NodePlan("n1", 1)]):
        yield Cluster()


@pytest.fixture(scope="module")
def ended(cluster: Cluster) -> Task:
    """A task that nothing can happen to any more."""
    return cluster.submit("true", target="n1").wait()


def parameters(kind: type) -> list[tuple[str, str]]:
    """Every method and each of its parameters."""
    methods = {name: each for name, each in vars(kind).items() if isinstance(each, Verb | StreamVerb)}
    return [
        (name, parameter)
        for name, method in methods.items()
        for parameter in inspect.signature(method.__wrapped__).parameters
        if parameter not in {"self", "options", *ENDLESS}
    ]


def misuse(on: object, method: str, parameter: str) -> None:
    verb = getattr(on, method)
    signature = inspect.signature(verb.__wrapped__)
    needed = {
        name: "x"
        for name, each in signature.parameters.items()
        if each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    several = signature.parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL
    for value in ANYTHING:
        args, given = ((value,), needed) if several else ((), needed | {parameter: value})
        with contextlib.suppress(AgentlessError, TimeoutError):
            found = verb(*args, **given)
            if inspect.isgenerator(found):
                list(found)


@pytest.mark.parametrize(("method", "parameter"), parameters(Cluster))
def test_a_method_of_a_cluster_given_anything_answers_or_tells_what_is_wrong(cluster, method, parameter):
    misuse(cluster, method, parameter)


@pytest.mark.parametrize(("method", "parameter"), parameters(Task))
def test_a_method_of_a_task_given_anything_answers_or_tells_what_is_wrong(ended, method, parameter):
    misuse(ended, method, parameter)


@pytest.mark.parametrize(("method", "parameter"), parameters(Batch))
def test_a_method_of_a_batch_given_anything_answers_or_tells_what_is_wrong(ended, method, parameter):
    misuse(Batch((ended,), ()), method, parameter)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda cluster: cluster.task(5), "reference must be a string, not 5"),
        (lambda cluster: cluster.drain(5), "node must be a string, not 5"),
        (lambda cluster: cluster.drain("n1", wait="yes"), "wait must be True or False, not 'yes'"),
        (lambda cluster: cluster.usage(by="gpu"), "by must be 'owner' or 'node' or 'batch', not 'gpu'"),
        (lambda cluster: cluster.usage([]), "since must be a number, a string, a datetime or a timedelta, not []"),
        (
            lambda cluster: cluster.submit_batch("true", targets=["n1", 5]),
            "targets must be a list of strings, not ['n1', 5]",
        ),
        (lambda cluster: cluster.recover([5]), "tasks must be a list of strings, not [5]"),
        (lambda cluster: cluster.reserve(5, owner=None, begin="1h", end="2h"), "targets must be a string, not 5"),
        (lambda cluster: cluster.events(last="3"), "last must be an integer or None, not '3'"),
        (lambda _: Cluster(inventory=5), "inventory must be a string, a path or None, not 5"),
    ],
)
def test_a_value_of_another_type_is_a_usage_error_that_says_what_is_wanted(cluster, call, words):
    with pytest.raises(UsageError) as refused:
        call(cluster)
    assert str(refused.value) == words


async def test_so_it_is_when_it_is_awaited(cluster):
    with pytest.raises(UsageError, match="reference must be a string, not 5"):
        await cluster.task.aio(5)
    with pytest.raises(UsageError, match="last must be an integer or None, not '3'"):
        async for _ in cluster.events.aio(last="3"):
            pass


def test_a_path_of_any_kind_names_an_inventory(cluster):
    inventory = Path(os.environ["AGENTLESS_INVENTORY"])
    assert [node.name for node in Cluster(inventory).nodes()] == ["n1"]


def test_one_text_is_one_task_to_recover_and_not_its_letters(cluster):
    assert cluster.recover("nothing") == []
