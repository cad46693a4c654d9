"""What a task needs: the grammar of targets, memory and types of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.scheduling.needs import Needs, is_type, joined, parse_gpu_types, parse_target
from agentless.model.scheduling.sharing import ALONE, Sharing


def exact(node: str, numa: int | None = None, indices: tuple[int, ...] = ()) -> Needs:
    return Needs(gpus=len(indices), nodes=(node,), numa=numa, indices=indices)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("node1", exact("node1")),
        ("gpu-2.lab_x", exact("gpu-2.lab_x")),
        ("7", exact("7")),
        ("node1:0", exact("node1", 0)),
        ("node1::0", exact("node1", None, (0,))),
        ("node1::3,0,11", exact("node1", None, (3, 0, 11))),
        ("node1::0-3", exact("node1", None, (0, 1, 2, 3))),
        ("node1::5,0-2", exact("node1", None, (5, 0, 1, 2))),
        ("node1:1::2", exact("node1", 1, (2,))),
        ("node1:9999", exact("node1", 9999)),
        ("node1::3-3", exact("node1", None, (3,))),
        ("10000x", Needs(gpus=10_000)),
        ("1x", Needs(gpus=1)),
        ("4xA100", Needs(gpus=4, gpu_types=("A100",))),
        ("2xA100:40G", Needs(gpus=2, gpu_types=("A100",), gpu_memory=40 * 10**9)),
        ("1x:24GiB", Needs(gpus=1, gpu_memory=24 << 30)),
        ("1x:4096", Needs(gpus=1, gpu_memory=4096 * 10**6)),
        ("2xH100,A100*:40G", Needs(gpus=2, gpu_types=("H100", "A100*"), gpu_memory=40 * 10**9)),
        ("1xRTX 4090", Needs(gpus=1, gpu_types=("RTX 4090",))),
    ],
)
def test_what_a_target_asks_for_is_read(text: str, needs: Needs) -> None:
    assert parse_target(text) == needs


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no node"),
        ("::0", "no node"),
        (":0", "no node"),
        ("-5", "'-5' is not a node name"),
        ("a b", "'a b' is not a node name"),
        (" node1", "' node1' is not a node name"),
        ("node1\n", "'node1\\n' is not a node name"),
        ("no\0de", "'no\\x00de' is not a node name"),
        ("nöde", "'nöde' is not a node name"),
        ("../x", "'../x' is not a node name"),
        ("node1:", "NUMA node '' is not a number"),
        ("node1:a::0", "NUMA node 'a' is not a number"),
        ("node1:-1", "NUMA node '-1' is not a number"),
        ("node1:10000", "NUMA node '10000' is not a number"),
        ("10001xA100", "10001 GPUs are out of range"),
        ("node1::", "no GPU after '::'"),
        ("node1::x", "GPU 'x' is not a number"),
        ("node1::-1", "GPU '-1' is not a number"),
        ("node1::0,", "GPU '' is not a number"),
        ("node1::0, 1", "GPU ' 1' is not a number"),
        ("node1::3-0", "are in reverse order; use 0-3"),
        ("node1::0-", "GPU '0-' is not a number"),
        ("node1::0-2,1", "GPU 1 is listed twice"),
        ("0xA100", "0 GPUs are out of range"),
        ("2xA100:", "no size after ':'"),
        ("2xA100:big", "'big' is not a size"),
        ("2xA100:-4G", "is not a size"),
        ("2xA100:40", "'40' has no unit, and 40 MB is implausible; did you mean 40G?"),
        ("2xA100,", "GPU type ''"),
        ("2x/etc", "GPU type '/etc'"),
        ("node1::0::1", "GPU '0::1' is not a number"),
        ("node1:::0", "GPU ':0' is not a number"),
        ("node1::٣", "GPU '٣' is not a number"),
        ("node1::²", "GPU '²' is not a number"),
        ("node1::99999", "GPU '99999' is not a number"),
        ("node1::0,0", "GPU 0 is listed twice"),
        ("node1::0,1,00", "GPU 0 is listed twice"),
    ],
)
def test_what_is_wrong_with_a_target_is_named(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert str(caught.value).startswith(f"target {text!r}: ")
    assert part in str(caught.value)


@given(
    st.from_regex(r"[A-Za-z][A-Za-z._-]{0,20}", fullmatch=True),
    st.none() | st.integers(0, 9999),
    st.lists(st.integers(0, 9999), unique=True, max_size=16),
)
def test_every_exact_target_reads_back_from_its_own_text(node: str, numa: int | None, gpus: list[int]) -> None:
    target = exact(node, numa, tuple(gpus))
    assert parse_target(str(target)) == target


@given(
    st.integers(1, 10_000),
    st.lists(st.from_regex(r"[A-Za-z0-9*][A-Za-z0-9*?_-]{0,8}", fullmatch=True), max_size=3),
    st.none() | st.integers(1, 2**50),
)
def test_every_number_of_gpus_reads_back_from_its_own_text(gpus: int, types: list[str], memory: int | None) -> None:
    target = Needs(gpus=gpus, gpu_types=tuple(types), gpu_memory=memory)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(), "any node"),
        (Needs(nodes=("a", "b")), "on a or b"),
        (Needs(gpus=1, exclude=("a", "b")), "1x not on a or b"),
        (Needs(gpus=1, on={"rack": "r1"}), "1x rack=r1"),
        (Needs(nodes=("a",), exclusive=True), "a exclusive"),
        (Needs(gpus=1, gpu_types=("L4",), nodes=("a",), indices=(0,)), "a::0 1xL4"),
        (Needs(gpus=1, gpu_share=2), "1x 1/2"),
    ],
)
def test_what_no_target_can_say_is_said_in_words(needs: Needs, words: str) -> None:
    assert str(needs) == words


def test_two_share_a_gpu_on_terms_and_one_has_it_alone() -> None:
    assert Needs(gpus=1, gpu_memory=5, gpu_share=2).sharing == Sharing(2, 5)
    assert Needs(gpus=1, gpu_share=2).sharing == Sharing(2, 0)
    assert Needs(gpus=1, gpu_memory=5).sharing == ALONE


@given(st.text() | st.text(alphabet="node1:,0 -\n") | st.text(alphabet="124xA,:G*"))
def test_any_text_is_a_target_or_refused_as_usage(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError:
        return
    assert parse_target(str(target)) == target


@pytest.mark.parametrize("text", ["2xA100", "2xA100:0", "2xA100:0G"])
def test_no_memory_of_a_gpu_is_no_demand(text: str) -> None:
    assert parse_target(text) == Needs(gpus=2, gpu_types=("A100",))


A100, RTX = "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 3090 Ti"


@pytest.mark.parametrize(
    ("name", "pattern", "is_one"),
    [
        (A100, "A100", True),
        (A100, "a100", True),
        (A100, "A100-SXM4", True),
        (A100, "a100 sxm4 80gb", True),
        (A100, "A1*", True),
        (A100, "A10", False),
        (A100, "A10?", True),
        (A100, "H100", False),
        (A100, "A100 40GB", False),
        (A100, "*", True),
        (RTX, "RTX 3090", True),
        (RTX, "3090", True),
        (RTX, "rtx*", True),
        (RTX, "309", False),
        (None, "A100", False),
    ],
)
def test_a_type_is_told_by_whole_words_of_the_name(name: str | None, pattern: str, is_one: bool) -> None:
    assert is_type(name, pattern) is is_one


@pytest.mark.parametrize("text", ["", "A100,", ",A100", "A/100", "A100;rm", "-x"])
def test_a_type_that_no_gpu_could_have_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gpu_types(text)


@pytest.mark.parametrize(
    ("options", "target", "needs"),
    [
        (Needs(gpus=2), "node3", Needs(gpus=2, nodes=("node3",))),
        (Needs(gpu_memory=5), "node3::1", Needs(gpus=1, gpu_memory=5, nodes=("node3",), indices=(1,))),
        (Needs(nodes=("a", "b")), "2xA100", Needs(gpus=2, gpu_types=("A100",), nodes=("a", "b"))),
        (Needs(exclusive=True), "node3", Needs(nodes=("node3",), exclusive=True)),
    ],
)
def test_a_target_and_options_add_up(options: Needs, target: str, needs: Needs) -> None:
    assert joined(options, parse_target(target), target) == needs


@pytest.mark.parametrize(
    ("options", "target", "part"),
    [
        (Needs(gpus=2), "node3::1", "omit --gpus and --gpu-type, or use node3"),
        (Needs(gpu_types=("A100",)), "node3::1", "omit --gpus and --gpu-type, or use node3"),
        (Needs(gpus=2), "2xA100", "omit --gpus"),
        (Needs(gpu_types=("H100",)), "2xA100", "omit --gpu-type"),
        (Needs(gpu_memory=5), "2x:40G", "omit --gpu-type and --gpu-memory"),
        (Needs(nodes=("a",)), "b", "omit --node"),
    ],
)
def test_a_target_and_options_that_contradict_each_other_are_refused(options: Needs, target: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        joined(options, parse_target(target), target)
