"""What matters of a task for where it fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.rules.scheduling.shape import Amounts, Shape, shape_of
from tests.pure.build import spec

NODE = NodeConfig("node1", "h", labels={"rack": "a"})


def shape(**needs) -> Shape:
    return shape_of(spec(needs=Needs(**needs)))


@pytest.mark.parametrize(
    ("types", "name", "rank"),
    [
        ((), "NVIDIA L4", 0),
        ((), None, 0),
        (("H100", "A100"), "NVIDIA H100 PCIe", 0),
        (("H100", "A100"), "NVIDIA A100-SXM4-40GB", 1),
        (("H100", "A100"), "NVIDIA L4", None),
        (("H100",), None, None),
    ],
)
def test_the_first_type_is_the_best_and_without_types_each_gpu_is(types, name, rank):
    assert shape(gpus=1, gpu_types=types).rank(name) == rank


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({}, ""),
        ({"nodes": ("node2", "node1")}, ""),
        ({"nodes": ("node2",)}, "node1 is not among the requested nodes"),
        ({"exclude": ("node2",)}, ""),
        ({"exclude": ("node1",)}, "node1 is excluded (--exclude)"),
        ({"on": {"rack": "a"}}, ""),
        ({"on": {"rack": "a", "site": "b"}}, "node1 has no label site=b"),
    ],
)
def test_a_node_is_one_that_was_asked_for_or_it_is_said_why_not(needs, words):
    assert shape(**needs).rules_out(NODE) == words


@pytest.mark.parametrize(
    ("env", "docker", "fits"), [(True, "docker", True), (True, "podman", False), (False, "podman", True)]
)
def test_an_env_is_for_nodes_that_keep_envs(env, docker, fits):
    assert (not shape()._replace(env=env).rules_out(replace(NODE, docker=(docker,)))) is fits


@pytest.mark.parametrize(
    ("exclusive", "gpus", "begin", "kept_off"),
    [
        (False, (), 0, True),
        (False, (0,), 0, False),
        (True, (0,), 0, True),
        (True, (0,), 20, False),
        (False, (), 20, False),
    ],
)
def test_a_reservation_of_gpus_keeps_off_the_node_who_wants_it_alone(exclusive, gpus, begin, kept_off):
    reserved = Reservation("r1", "node1", gpus, None, 10, 20)
    assert shape(exclusive=exclusive).is_kept_off(reserved, begin, begin + 15) is kept_off


MIDDLE = Amounts(4, 8, 60)


@pytest.mark.parametrize(
    ("more", "within"),
    [
        ({}, True),
        ({"cores": 3, "memory": 7, "length": 59}, True),
        ({"cores": 4.5}, False),
        ({"memory": 9}, False),
        ({"length": 61}, False),
        ({"sure": False}, False),
        ({"cores": 3, "memory": 9}, False),
    ],
)
def test_who_wants_no_more_of_anything_is_within(more, within):
    assert MIDDLE._replace(**more).within(MIDDLE) is within


@pytest.mark.parametrize(("length", "sure", "within"), [(60, True, True), (60, False, True), (61, False, False)])
def test_a_length_that_was_learned_may_count_as_endless(length, sure, within):
    assert Amounts(4, 8, length, sure).within(MIDDLE._replace(sure=False)) is within


def test_the_shape_says_what_the_spec_asks_for():
    asked = spec(needs=Needs(gpus=1, gpu_memory=7, on={"b": "1", "a": "2"}), share=True)
    found = shape_of(asked, "ann@a")
    assert (found.gpu_memory, found.on, found.owner) == (7, (("a", "2"), ("b", "1")), "ann@a")
    assert (found.sharing, found.share) == (Sharing(strangers=True), True)
    plain = shape()
    assert (plain.gpu_memory, plain.on, plain.sharing, plain.share) == (0, (), ALONE, False)


def test_a_task_in_an_env_has_the_id_of_an_image():
    assert [shape_of(spec(image_id=each)).env for each in (None, "sha256:1")] == [False, True]
