"""A signature is worth what it was made for: these labels, on this node, by whoever has the key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.containers.claim import TASK, claim_of, labels_of
from agentless.model.containers.container import Container
from agentless.model.containers.signature import COVERED, SIGNATURE, Signer
from agentless.rules.tasks.identity import called, digest, is_adoptable
from agentless.stores.key import KeyFile
from tests.pure.build import CID, SIGNER, placement, spec, task

LABELS = SIGNER.sign(labels_of(task(spec=spec(cores=2.0)), placement(), "c1"), "node1")


def test_what_was_signed_is_recognised_whatever_the_engine_adds_to_it() -> None:
    assert SIGNER.has_signed(LABELS | {"maintainer": "somebody", "agentless.env": "torch"}, "node1")


@pytest.mark.parametrize("key", COVERED)
def test_each_word_of_a_claim_is_covered(key: str) -> None:
    assert not SIGNER.has_signed(LABELS | {key: LABELS.get(key, "") + "1"}, "node1")
    assert SIGNER.has_signed({k: v for k, v in LABELS.items() if k != key}, "node1") == (not LABELS.get(key))


def test_it_is_worth_nothing_on_another_node_or_by_another_key() -> None:
    assert not SIGNER.has_signed(LABELS, "node2")
    assert not Signer("c1", b"another key").has_signed(LABELS, "node1")


@given(st.text())
def test_no_other_words_pass_for_a_signature(words: str) -> None:
    assert SIGNER.has_signed(LABELS | {SIGNATURE: words}, "node1") == (words == LABELS[SIGNATURE])


def test_values_cannot_be_moved_from_one_label_to_the_next() -> None:
    first, second = COVERED[0], COVERED[1]
    moved = LABELS | {first: LABELS[first][:-1], second: LABELS[first][-1] + LABELS[second]}
    assert not SIGNER.has_signed(moved, "node1")


def test_the_key_is_shown_nowhere() -> None:
    assert "key" not in repr(SIGNER)


@pytest.mark.parametrize(
    ("name", "signed", "controller", "taken"),
    [
        ("agentless-t1", True, "c1", True),
        ("a-copy", True, "c1", False),
        ("agentless-t1", False, "c1", False),
        ("agentless-t1", True, "c2", False),
    ],
)
def test_only_what_a_launch_has_named_and_signed_is_taken_in(
    name: str, signed: bool, controller: str, taken: bool
) -> None:
    found = Container(CID, name, "running", LABELS, signed=signed)
    claim = claim_of(found)
    assert claim
    assert is_adoptable(found, claim, controller) == taken


@pytest.mark.parametrize(
    ("remembered", "controller", "signed", "its_own"),
    [
        ((True, CID), "c1", False, False),
        ((True, CID), "c1", True, False),
        ((True, "another"), "c1", True, True),
        ((True, None), "c1", True, False),
        ((True, None), "c1", False, True),
        ((False, None), "c1", True, False),
        ((False, None), "c1", False, True),
        ((False, None), "c2", False, False),
    ],
)
def test_a_container_is_called_by_its_own_id_where_its_label_has_no_right_to_that_of_a_task(
    remembered: tuple[bool, str | None], controller: str, signed: bool, its_own: bool
) -> None:
    found = Container(CID, "agentless-t1", "running", LABELS, signed=signed)
    claim = claim_of(found)
    assert claim
    assert called(found, claim, controller, remembered) == (CID[:12] if its_own else "t1")


def test_what_is_no_id_is_never_shown_as_one() -> None:
    found = Container(CID, "agentless-../t1", "running", LABELS | {TASK: "../t1"}, signed=True)
    claim = claim_of(found)
    assert claim
    assert called(found, claim, "c1", (True, CID)) == CID[:12]
    assert not is_adoptable(found, claim, "c1")


def test_what_was_looked_at_is_not_another_one_nor_one_with_other_labels() -> None:
    found = Container(CID, "agentless-t1", "running", LABELS)
    assert digest(found) == digest(replace(found, labels=dict(reversed(LABELS.items()))))
    assert digest(found) != digest(replace(found, id="another"))
    assert digest(found) != digest(replace(found, labels=LABELS | {"a": "b"}))


# ------------------------------------------------------------------- the key


def test_a_key_is_made_once_and_nobody_else_reads_it(tmp_path) -> None:
    first = KeyFile(tmp_path / "key")
    assert (len(first.key), (tmp_path / "key").stat().st_mode & 0o777, first.warning) == (32, 0o600, None)
    assert KeyFile(tmp_path / "key").key == first.key


def test_half_a_key_is_none(tmp_path) -> None:
    (tmp_path / "key").write_bytes(b"half")
    assert len(KeyFile(tmp_path / "key").key) == 32


def test_where_no_key_can_be_written_there_is_one_all_the_same_and_a_warning(tmp_path) -> None:
    found = KeyFile(tmp_path / "nowhere" / "key")
    assert len(found.key) == 32
    assert "cannot write" in (found.warning or "")
