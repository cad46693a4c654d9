"""A machine under two names, and a GPU that two nodes name, are there once, and it is said."""

from __future__ import annotations

from dataclasses import replace

from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig
from agentless.rules.nodes.survey import survey
from agentless.rules.nodes.twins import boot_of, marks, may_have, taken, twin_words
from agentless.rules.views.publish import node_view
from tests.pure.build import NOW, seen, uuid


def machine(engine: str = "e1", boot: str = "b1", gpus: int = 0) -> Observation:
    found = seen("one", gpus=gpus)
    assert found.engine
    return replace(found, host=HostFacts(8, 1024, boot=boot), engine=replace(found.engine, id=engine))


def always(_: str, __: str) -> bool:
    return True


def never(_: str, __: str) -> bool:
    return False


def test_who_had_it_first_keeps_it_while_it_may_have_it() -> None:
    named = marks(machine(gpus=2))
    homes = taken("one", named, {}, always)
    assert set(homes.values()) == {"one"}
    assert taken("two", named, homes, always) == {}


def test_what_another_node_has_no_more_has_moved() -> None:
    assert taken("two", [uuid("one", 0)], {uuid("one", 0): "one"}, never) == {uuid("one", 0): "two"}


def test_a_node_whose_driver_or_engine_does_not_answer_has_given_up_nothing() -> None:
    well = machine(gpus=1)
    gpu, engine = marks(well)
    dumb = replace(well, sample=GpuSample((), None, "the driver hangs"), engine=EngineFacts(error="it is down"))
    assert may_have(dumb, gpu)
    assert may_have(dumb, engine)
    gone = replace(well, sample=GpuSample(), host=HostFacts(8, 1024, boot="b2"))
    assert not may_have(gone, gpu)
    assert not may_have(gone, engine)


def test_who_names_it_has_it() -> None:
    well = machine(gpus=1)
    assert all(may_have(well, mark) for mark in marks(well))


def test_a_driver_that_hangs_says_nothing_of_the_engine_and_an_engine_that_is_down_nothing_of_the_gpus() -> None:
    gpu, engine = marks(machine(gpus=1))
    hangs = replace(machine(boot="b2"), sample=GpuSample((), None, "the driver hangs"))
    assert (may_have(hangs, gpu), may_have(hangs, engine)) == (True, False)
    down = replace(machine(), sample=GpuSample(), engine=EngineFacts(error="it is down"))
    assert (may_have(down, gpu), may_have(down, engine)) == (False, True)


def test_machines_from_one_image_are_two() -> None:
    """They may have one engine ID; they were not booted at one time."""
    homes = taken("one", marks(machine()), {}, always)
    assert not twin_words("two", machine(boot="b2"), homes)
    assert "same machine as one" in twin_words("two", machine(), homes)


def test_what_says_nothing_of_itself_is_nobodys_twin() -> None:
    unknown = replace(machine(), engine=EngineFacts("20"), host=None)
    assert marks(unknown) == ()


def test_the_gpu_is_counted_once_and_nothing_is_placed_by_the_second_name() -> None:
    both = {"one": machine(gpus=2), "two": machine(gpus=2)}
    homes = taken("one", marks(both["one"]), {}, always)
    nodes = survey({name: NodeConfig(name, "h") for name in both}, both, (), NOW, homes=homes).nodes
    assert [(name, node.state, node_view(node).gpus) for name, node in nodes.items()] == [
        ("one", "online", 2),
        ("two", "degraded", 0),
    ]
    assert {(gpu.state, gpu.reason) for gpu in nodes["two"].gpus} == {("excluded", "same GPU as on one; counted there")}
    words = twin_words("two", both["two"], homes)
    assert nodes["two"].reason == words


def test_one_gpu_that_another_node_names_as_well_is_said_by_number() -> None:
    lying = machine(engine="e2", gpus=1)
    assert twin_words("two", lying, {uuid("one", 0): "one"}).startswith("1 of its GPUs belongs to one;")


def test_a_machine_was_rebooted_when_it_is_the_same_in_another_boot() -> None:
    before = boot_of(machine(gpus=2))
    assert before
    same = {
        "later": machine(gpus=2),
        "rebooted": machine(boot="b2", gpus=2),
        "rebooted, with a GPU less": machine(boot="b2", gpus=1),
        "rebooted, before the driver": machine(boot="b2"),
        "rebooted, with an engine set up anew": machine("e2", "b2", gpus=2),
        "another one": machine("e2", "b2"),
    }
    found = {name: bool((boot := boot_of(each)) and boot.follows(before)) for name, each in same.items()}
    assert found == {name: name.startswith("rebooted") for name in same}
    assert boot_of(Observation()) is None
