"""A workflow in labels: what was written can be read, and nothing else can; both are bounded."""

from __future__ import annotations

import base64
import errno
import os
import random
import stat
import zlib
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import StateError
from agentless.model.containers.claim import SPEC, TASK
from agentless.model.files.file_spec import Output
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from agentless.rules.workflows import carried
from agentless.rules.workflows.carried import MAX_BYTES, MAX_HEAD, MAX_JOBS, Carried, Head
from agentless.stores.workflow_proof import WorkflowProof

JOB = Job("a", "w", workflow="t0", artifacts=("out",))
SPECIFIC = TaskSpec(
    ("sh", "-c", "echo 'é'"),
    job=JOB,
    env={"A": "1"},
    outputs=(Output("x", "/here/x"), Output("out", "/state/artifacts/{id}/")),
    terms=Terms(requires=(Requirement("t0", "ended"),), retries=2),
)
HEAD = Head("t0", "w", "ann@desk", "c1", 1000.0, ".b", "d" * 64, 3)
LABELS = {TASK: "t0", SPEC: "{}"}
KEY = b"k" * 32


def label(*lines, of=b'""'):
    return base64.b85encode(zlib.compress(b"\n".join((of, *lines)))).decode()


def line(key="t1", **spec):
    whole = {"command": ["a"], "job": {"name": "a", "of": "w", "workflow": "t0"}} | spec
    return key.encode() + b" " + orjson.dumps(whole)


def test_jobs_come_back_without_the_places_of_their_artifacts():
    jobs = {"t0": TaskSpec(("true",), job=JOB, outputs=(Output("out", "/x"),)), "t1": SPECIFIC}
    found = carried.unpack(carried.pack(Carried(jobs, "jobs: {}")))
    assert found == Carried(
        {"t0": replace(jobs["t0"], outputs=()), "t1": replace(SPECIFIC, outputs=SPECIFIC.outputs[:1])}, "jobs: {}"
    )


def test_a_thousand_jobs_fit_and_what_is_larger_than_a_label_is_not_carried():
    spec = TaskSpec(("python", "train.py"), job=Job("a", "w", workflow="t0"))
    thousand = {f"t{number}": replace(spec, parameters={"lr": str(number)}) for number in range(1000)}
    assert 0 < len(carried.pack(Carried(thousand))) < MAX_JOBS / 2
    assert carried.pack(Carried({"t0": spec}, random.Random(1).randbytes(MAX_JOBS).hex())) == ""
    assert carried.pack(Carried({"t0": spec}, " " * MAX_BYTES)) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        "", " ", "x" * (MAX_JOBS + 1), base64.b85encode(b"x").decode(), label(), label(line(), of=b"1"),
        label(line("../x")), label(line("t1-2")), label(line(command=[])), label(line(command="ls")),
        label(line(job=None)), label(line(workload="vps", name="x")), label(line(gang={"size": 2})),
        label(line(gang={"size": 2, "members": ["t1", "t2"]})),
        label(line(command=["a" * 200_000])), label(line(), b""), label(*[line()] * 2, of=b"[" * 10_000),
        label(line(), of=b'"' + b" " * MAX_BYTES + b'"'), label(*[b"t "] * 10_001),
        base64.b85encode(zlib.compress(b'""\n' + line())[:-6]).decode(),
    ],
)  # fmt: skip
def test_what_is_no_such_label_is_not_read(wrong):
    assert carried.unpack(wrong) is None


def test_a_label_that_would_unpack_to_hundreds_of_megabytes_is_not_unpacked():
    packer, parts = zlib.compressobj(9), []
    parts = [packer.compress(b" " * (1 << 20)) for _ in range(48)]
    bomb = base64.b85encode(b"".join((*parts, packer.flush()))).decode()
    assert len(bomb) <= MAX_JOBS
    assert carried.unpack(bomb) is None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.text(max_size=300))
def test_anything_else_is_not_read_either(data, text):
    assert carried.unpack(base64.b85encode(zlib.compress(data)).decode()) is None
    assert carried.parse_head(f"1:x:{base64.b64encode(zlib.compress(data)).decode()}") is None
    assert carried.unpack(text) is None
    assert carried.parse_head(text) is None
    assert not carried.has_signed(KEY, text, LABELS, "n1")


def test_a_head_is_read_and_believed_only_on_its_container_node_and_with_its_key():
    signed = carried.sign(KEY, HEAD, LABELS, "n1")
    assert carried.parse_head(signed) == HEAD
    assert carried.has_signed(KEY, signed, LABELS, "n1")
    assert not carried.has_signed(None, signed, LABELS, "n1")
    assert not carried.has_signed(b"other", signed, LABELS, "n1")
    assert not carried.has_signed(KEY, signed, LABELS, "n2")
    assert not carried.has_signed(KEY, signed, LABELS | {TASK: "t1"}, "n1")
    assert not carried.has_signed(KEY, signed, LABELS | {SPEC: '{"a":1}'}, "n1")


@pytest.mark.parametrize(
    "change",
    [{"owner": "bob@desk"}, {"workflow": "t9"}, {"states": ".."}, {"jobs": "e" * 64}, {"stops": 2}, {"at": 9999.0}],
)
def test_a_changed_head_is_not_believed(change):
    signature = carried.sign(KEY, HEAD, LABELS, "n1").split(":")[1]
    body = carried.sign(b"evil", replace(HEAD, **change), LABELS, "n1").split(":")[2]
    assert not carried.has_signed(KEY, f"1:{signature}:{body}", LABELS, "n1")


@pytest.mark.parametrize(
    "change",
    [{"workflow": "../x"}, {"name": "a b"}, {"owner": "a\n"}, {"states": "xy"}, {"stops": -1}, {"at": -1.0},
     {"states": "." * 10_001}, {"owner": ""}],
)  # fmt: skip
def test_a_head_of_other_values_is_none(change):
    assert carried.parse_head(carried.sign(KEY, replace(HEAD, **change), LABELS, "n1")) is None


def test_the_head_of_ten_thousand_jobs_fits_whatever_became_of_them():
    noise = replace(HEAD, states="".join(random.Random(1).choices(".bcfo", k=10_000)), owner="é" * 200)
    signed = carried.sign(KEY, noise, LABELS, "n1")
    assert len(signed) < MAX_HEAD
    assert carried.parse_head(signed) == noise


def test_the_digest_that_a_person_compares_differs_with_what_would_run_and_for_whom():
    others = [replace(HEAD, jobs="e" * 64), replace(HEAD, owner="bob"), replace(HEAD, name="v")]
    assert len({carried.digest(each) for each in (HEAD, *others)}) == 4
    assert carried.digest(HEAD) == carried.digest(replace(HEAD, at=5.0, states="bb"))


# ---------------------------------------------------------------------- what outlives the state


def test_the_key_is_made_once_for_its_owner_alone_and_differs_by_state_folder(tmp_path):
    proof = WorkflowProof(tmp_path / "workflows", tmp_path / "state")
    assert (proof.key(), proof.stops, proof.stopped()) == (None, None, None)
    key = proof.make()
    assert proof.make() == key == WorkflowProof(tmp_path / "workflows", tmp_path / "state").key()
    assert WorkflowProof(tmp_path / "workflows", tmp_path / "other").make() != key
    files = sorted((tmp_path / "workflows").iterdir())
    assert [stat.S_IMODE(each.stat().st_mode) for each in files] == [0o600] * 3
    assert stat.S_IMODE((tmp_path / "workflows").stat().st_mode) == 0o700


def test_a_key_that_others_may_read_or_that_is_none_is_not_used(tmp_path):
    proof = WorkflowProof(tmp_path, tmp_path / "state")
    proof.make()
    (tmp_path / "key").chmod(0o640)
    assert proof.key() is None
    with pytest.raises(StateError, match="is not a key that only you can read"):
        proof.make()
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "key").write_bytes(b"short")
    assert proof.key() is None


def test_stops_are_recorded_and_counted(tmp_path):
    proof = WorkflowProof(tmp_path, tmp_path / "state")
    proof.record(["t0"])
    assert (proof.stops, proof.recorded) == (None, None)  # no label was ever written
    proof.make()
    proof.record(["t0", "../evil"])
    proof.record(["t1"])
    assert (proof.stops, proof.stopped()) == (2, {"t0", "t1"})


def test_stops_that_could_only_be_written_in_part_are_whole_lines_later(tmp_path, monkeypatch):
    proof = WorkflowProof(tmp_path, tmp_path / "state")
    proof.make()
    proof.record(["t1"])
    real, left = os.write, [3, 1]

    def full(opened, text):
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(opened, text[: left.pop(0)])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StateError, match="No space left on device"):
        proof.record(["t2", "t3"])
    assert (proof.stopped(), list(proof.pending), proof.recorded) == ({"t1"}, ["t2", "t3"], 1)
    left += [2] * 9
    proof.record(["t4", "t1"])
    assert (proof.stopped(), proof.recorded, proof.stops) == ({"t1", "t2", "t3", "t4"}, 4, 4)


def test_the_rest_of_a_line_of_a_crash_is_not_glued_to_the_next_stop(tmp_path):
    proof = WorkflowProof(tmp_path, tmp_path / "state")
    proof.make()
    proof.record(["t1"])
    (record,) = tmp_path.glob("stopped-*")
    record.write_text(record.read_text() + "t")
    again = WorkflowProof(tmp_path, tmp_path / "state")
    again.record(["t2"])
    assert again.stopped() == {"t1", "t2"}
