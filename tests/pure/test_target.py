"""The grammar of a target: `HOST[:NUMA][::GPU,…]`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("node1", Target("node1")),
        ("gpu-2.lab_x", Target("gpu-2.lab_x")),
        ("7", Target("7")),
        ("node1:0", Target("node1", 0)),
        ("node1::0", Target("node1", None, (0,))),
        ("node1::3,0,11", Target("node1", None, (3, 0, 11))),
        ("node1:1::2", Target("node1", 1, (2,))),
    ],
)
def test_host_numa_node_and_gpus_are_read(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no node"),
        ("::0", "no node"),
        (":0", "no node"),
        ("-5", "'-5' is no node name"),
        ("a b", "'a b' is no node name"),
        (" node1", "' node1' is no node name"),
        ("node1\n", "'node1\\n' is no node name"),
        ("no\0de", "'no\\x00de' is no node name"),
        ("nöde", "'nöde' is no node name"),
        ("../x", "'../x' is no node name"),
        ("node1:", "NUMA node '' is not a number"),
        ("node1:a::0", "NUMA node 'a' is not a number"),
        ("node1:-1", "NUMA node '-1' is not a number"),
        ("node1::", "no GPU after '::'"),
        ("node1::x", "GPU 'x' is not a number"),
        ("node1::-1", "GPU '-1' is not a number"),
        ("node1::0,", "GPU '' is not a number"),
        ("node1::0, 1", "GPU ' 1' is not a number"),
        ("node1::0-3", "GPU '0-3' is not a number"),
        ("node1::0::1", "GPU '0::1' is not a number"),
        ("node1:::0", "GPU ':0' is not a number"),
        ("node1::٣", "GPU '٣' is not a number"),
        ("node1::²", "GPU '²' is not a number"),
        ("node1::99999", "GPU '99999' is not a number"),
        ("node1::0,0", "GPU 0 is named twice"),
        ("node1::0,1,00", "GPU 0 is named twice"),
    ],
)
def test_what_is_wrong_with_a_target_is_named(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert str(caught.value).startswith(f"target {text!r}: ")
    assert part in str(caught.value)


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    st.none() | st.integers(0, 9999),
    st.lists(st.integers(0, 9999), unique=True, max_size=16),
)
def test_every_target_reads_back_from_its_own_text(node: str, numa: int | None, gpus: list[int]) -> None:
    target = Target(node, numa, tuple(gpus))
    assert parse_target(str(target)) == target


@given(st.text() | st.text(alphabet="node1:,0 -\n"))
def test_any_text_is_a_target_or_refused_as_usage(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError:
        return
    assert parse_target(str(target)) == target
