"""Claims of GPUs and of slices of them, in the real shell functions: never both, and slices do not exclude each other.

Two controllers and four ways to hold a GPU: a container that the asking Docker lists, one of another Docker engine, of
which only the control group is seen, podman's `conmon` process, and a task of systemd.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.engines import beside, launch_script
from agentless.engines.podman.dialect import PODMAN
from agentless.engines.systemd.engine import _claim
from agentless.errors import Refused
from agentless.model.command import Result
from agentless.model.containers.claim import EXCLUSIVE, GPU_MEMORY, GPU_SHARE, GPUS, OWNER, TASK, labels_of
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.task import Assigning, Placement, Task
from tests.engines import RENDERER
from tests.pure.build import NOW, spec, task
from tests.pure.test_launch_script import Node, in_each_shell, node

__all__ = ["node"]  # a fixture

GPU = ("GPU-5d1c00a1-0000-1000-8000-000000000000", "GPU-5d1c00b2-0000-1000-8000-000000000000")
SLICE = {f"{gpu}/{part}": f"MIG-{gpu}{part}c0ffee-5678-5234-9abc-0123456789ab" for gpu in range(2) for part in range(3)}
NUMBERS: tuple[Any, ...] = (0, 1, *SLICE)
WAYS = ("docker", "group", "podman", "systemd")


def place(*numbers: Any, total: int = 0) -> Placement:
    """A placement on these GPUs and slices."""
    uuids = tuple(GPU[number] if isinstance(number, int) else SLICE[number] for number in numbers)
    parents = tuple("" if isinstance(number, int) else GPU[int(number[0])] for number in numbers)
    return Placement("node1", numbers, uuids, parents=parents if any(parents) else (), gpu_total=total)


@dataclass(frozen=True)
class Held:
    """A task that holds GPUs, and by which way others see it."""

    task: Task
    way: str

    @property
    def at(self) -> Placement:
        assert self.task.placement
        return self.task.placement


def holder(name: str, *numbers: Any, way: str = "docker", owner: str = "ann@a", shares: int = 1) -> Held:
    needs = Needs(
        len(numbers), nodes=("node1",), indices=numbers, gpu_share=shares, gpu_memory=10 if shares > 1 else None
    )
    of = task(name, state="assigning", owner=owner, spec=spec(needs=needs))
    return Held(replace(of, status=Assigning(place(*numbers, total=1000), NOW)), way)


def ask(wanted: Held, holders: list[Held], shell: tuple[str, ...] = ("sh",)) -> Result:
    """What the node answers to a launch of `wanted` by Docker while these hold their GPUs."""
    tokens, sharing = wanted.at.tokens, wanted.task.spec.needs.sharing
    script = _functions() + RENDERER.script("groups.sh.j2", named_gpus=beside.group_names(tokens)) + "\n"
    script += "".join(f'live="$live\n$({_seen(held)})"\n' for held in holders)
    words = " ".join(tokens)
    script += f"claim '' {sharing.limit} {sharing.floor} {wanted.at.gpu_total} '{words}' '' && exit 0\n"
    script += "printf '%s\\n' \"$said\"\nexit 75\n"
    done = subprocess.run([*shell], input=script.encode(), capture_output=True, check=False)
    assert not done.stderr, done.stderr
    return Result(done.returncode, done.stdout)


@cache
def _functions() -> str:
    start = "live= running= listed= programs=\nis_listed() { return 1; }\n"
    return start + "".join(RENDERER.script(name) + "\n" for name in ("claims.sh.j2", "conmons.sh.j2"))


def _seen(held: Held) -> str:
    """The commands that print a line of `live` for a holder, as the launch script has them."""
    of, at, id_ = held.task, held.at, f"id-{held.task.id}"
    labels = labels_of(of, at, "c1")
    if held.way == "docker":
        claim = "|".join(labels[name] for name in (GPUS, EXCLUSIVE, GPU_SHARE, GPU_MEMORY, TASK, OWNER))
        return f"printf '%s\\n' '{id_}|{of.container_name}|Up|{claim}'"
    if held.way == "podman":
        return f"printf '%s\\n' -c {id_} -n '{PODMAN.container_name(of, at)}' | claimed"
    if held.way == "group":
        name = beside.group(of, at, "/docker").rpartition("agentless_claim.")[2]
        return f"id={id_}; claimed_by_group '{name}'"
    return f"printf '%s\\n' '{_claim(of, at).removeprefix('agentless-claim=')}'"


def overlaps(one: Any, other: Any) -> bool:
    """Written for this test: the same device, or a GPU and a slice of it."""
    return bool(
        str(one).split("/") == str(other).split("/")
        or (str(one)[0] == str(other)[0] and int in (type(one), type(other)))
    )


# ---------------------------------------------------------------------- any claims

_DEVICES = st.one_of(
    st.sampled_from(NUMBERS).map(lambda number: (number,)),
    st.sampled_from([(0, 1), ("0/0", "0/1"), ("0/0", "1/2"), (0, "1/0"), ("0/2", 1)]),
)
_TRIES = st.lists(st.tuples(_DEVICES, st.sampled_from(WAYS), st.sampled_from(["ann@a", "bob@b"])), max_size=7)


@settings(deadline=None, max_examples=10)
@given(_TRIES)
def test_a_gpu_and_its_slices_are_never_held_at_once_and_slices_do_not_exclude_each_other(tries: Any) -> None:
    claim_all(tries)


@pytest.mark.slow
@settings(deadline=None, max_examples=250)
@given(_TRIES)
def test_the_same_of_many_more_claims(tries: Any) -> None:
    claim_all(tries)


def claim_all(tries: Any) -> None:
    holders: list[Held] = []
    for n, (numbers, way, owner) in enumerate(tries):
        wanted = holder(f"t{n}", *numbers, way=way, owner=owner)
        free = not any(overlaps(one, other) for held in holders for one in numbers for other in held.at.gpus)
        assert (ask(wanted, holders).exit_code == 0) == free, (numbers, [held.at.gpus for held in holders])
        if free:
            holders.append(wanted)


# ---------------------------------------------------------------------- each case once

SHELLS = [("dash",), *(pytest.param(words, marks=pytest.mark.slow) for words in (("bash",), ("busybox", "sh")))]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        ((0,), ("0/1",), False),
        (("0/1",), (0,), False),
        (("0/1",), ("0/1",), False),
        (("0/1",), ("0/2",), True),
        (("0/1",), ("1/1",), True),
        (("0/1",), (1,), True),
        ((0,), (1,), True),
        (("0/1",), ("0/0", "0/2"), True),
        (("0/1", "0/2"), ("0/2",), False),
        (tuple(SLICE), ("0/0",), False),
    ],
)
def test_who_is_in_the_way(way: str, held: tuple[Any, ...], wanted: tuple[Any, ...], free: bool, shell: Any) -> None:
    assert (ask(holder("t2", *wanted), [holder("t1", *held, way=way)], shell).exit_code == 0) == free


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [(("0/1",), ("0/1",), True), (("0/1",), (0,), False), ((0,), ("0/1",), False), ((0,), (0,), True)],
)
def test_a_slice_is_shared_as_a_gpu_is_but_not_with_who_has_the_gpu(
    way: str, held: tuple[Any, ...], wanted: tuple[Any, ...], free: bool
) -> None:
    there = [holder("t1", *held, way=way, shares=2)]
    assert (ask(holder("t2", *wanted, shares=2), there).exit_code == 0) == free
    assert ask(holder("t2", *wanted), there).exit_code == 75


def partition(name: str, mode: str, part: int, way: str = "docker", shares: int = 1) -> Held:
    """A task that holds a partition of an AMD card."""
    one, card = holder(name, f"0/{part}", way=way, shares=shares), "AMD-dc91284879207f2b"
    its = f"AMD-{mode}{part}-{card.removeprefix('AMD-')}"
    at = Placement("node1", (f"0/{part}",), (its,), parents=(card,), vendor="amd", gpu_total=1000)
    return Held(replace(one.task, status=Assigning(at, NOW)), way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("mode", "part", "free"), [("cpx", 1, True), ("cpx", 0, False), ("dpx", 0, False), ("dpx", 1, False)]
)
def test_partitions_exclude_those_of_before_the_card_was_divided_anew(
    way: str, mode: str, part: int, free: bool
) -> None:
    for shares in (1, 2):
        there = [partition("t1", mode, part, way, shares)]
        own = partition("t2", "cpx", 0, shares=shares)
        assert (ask(own, there).exit_code == 0) == (free or (shares == 2 and (mode, part) == ("cpx", 0)))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shells_agree_on_a_card_that_was_divided_anew(shell: Any) -> None:
    assert ask(partition("t2", "cpx", 1), [partition("t1", "dpx", 0)], shell).exit_code == 75
    assert ask(partition("t2", "cpx", 1), [partition("t1", "cpx", 0)], shell).exit_code == 0


def test_on_a_slice_there_are_as_many_shares_as_on_a_gpu() -> None:
    there = [holder(f"t{n}", "0/1", shares=2) for n in range(2)]
    with pytest.raises(Refused, match=r"GPU 0/1 has no share left \(2 in use\)"):
        launch_script.check_claims(*_answer(holder("t2", "0/1", shares=2), there))


def _answer(wanted: Held, there: list[Held]) -> tuple[Task, NodeConfig, Result]:
    return wanted.task, NodeConfig("node1", "h"), ask(wanted, there)


@pytest.mark.parametrize("way", ["docker", "podman", "systemd"])
def test_who_wants_the_whole_gpu_is_told_which_slices_are_held_by_whom(way: str) -> None:
    """By the node, when the controller believes that the GPU is whole."""
    there = [holder("t1", "0/1", "0/2", way=way), holder("t2", "0/0", owner="bob@b")]
    with pytest.raises(Refused) as refused:
        launch_script.check_claims(*_answer(holder("t3", 0), there))
    owner = "ann_a" if way == "podman" else "ann@a"
    assert sorted(str(refused.value).removeprefix("node1::0: ").split("; ")) == [
        f"slice {SLICE['0/0']} of GPU 0 is held by task t2 of bob@b",
        f"slice {SLICE['0/1']} of GPU 0 is held by task t1 of {owner}",
        f"slice {SLICE['0/2']} of GPU 0 is held by task t1 of {owner}",
    ]


def test_who_wants_a_slice_of_a_gpu_that_is_held_whole_is_told_by_whom() -> None:
    with pytest.raises(Refused, match=r"^node1::0/1: GPU 0/1 is held by task t1 of ann@a$"):
        launch_script.check_claims(*_answer(holder("t2", "0/1"), [holder("t1", 0)]))


def test_a_controller_that_knows_only_whole_gpus_sees_the_gpu_of_a_slice_as_held() -> None:
    """Its script looks for the UUID between commas, and for its first digits between dots."""
    at = place("0/1")
    of = holder("t1", "0/1").task
    assert f",{GPU[0]}," in f",{labels_of(of, at, 'c1')[GPUS]},"
    assert f".{GPU[0]}." in f"{PODMAN.container_name(of, at)}."
    assert f",{GPU[0]}," in f",{_claim(of, at).split('|')[3]},"
    assert ".5d1c00a1." in f"{beside.group(of, at, '/docker')}."


def test_a_group_whose_name_would_be_too_long_holds_all_gpus_whole() -> None:
    many = holder("t1", *SLICE, owner="x" * 60, way="group")
    assert beside.group(many.task, many.at, "/docker").endswith(".all")
    assert ask(holder("t2", "0/1", shares=2), [many]).exit_code == 75


# ---------------------------------------------------------------------- in the whole script


@in_each_shell
def test_the_script_of_a_launch_gives_two_slices_and_not_the_gpu(node: Node) -> None:
    """On a GPU that no other test has: a launch sees all claims of the machine."""
    gpu, parts = f"GPU-{uuid4()}", [f"MIG-{uuid4()}" for _ in range(3)]

    def launch(name: str, *numbers: Any) -> str:
        uuids = tuple(gpu if number == 0 else parts[int(number[2:])] for number in numbers)
        at = Placement("node1", numbers, uuids, parents=() if numbers == (0,) else (gpu,) * len(numbers))
        of = holder(name, *numbers).task
        return node.engine.parse_launch(replace(of, status=Assigning(at, NOW)), node.result(node.start(of, at=at)))

    launch("t1", "0/1")
    launch("t2", "0/0", "0/2")
    with pytest.raises(Refused, match=rf"^node1::0: slice {parts[1]} of GPU 0 is held by task t1 of ann@a; slice "):
        launch("t3", 0)
    with pytest.raises(Refused, match=r"^node1::0/2: GPU 0/2 is held by task t2 of ann@a$"):
        launch("t4", "0/2")
    assert launch("t1", "0/1")  # the same again finds its container
    assert sorted(node.containers()) == ["agentless-t1", "agentless-t2"]
