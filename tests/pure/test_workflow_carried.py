"""A workflow in a label: what had not begun can be read from it, and nothing else can."""

from __future__ import annotations

import base64
import zlib

import pytest

from agentless.model.tasks.job import Job
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.rules.workflows.carried import LONGEST, joined, left, pack, unpack, with_begun


def tasks(count: int, of: str = "t0") -> list[Task]:
    spec = TaskSpec(("true",), job=Job("a", "w", workflow=of))
    return [Task(f"t{number}", spec, of, "ann", 1.0) for number in range(count)]


def test_what_had_not_begun_anywhere_goes_on():
    packed = pack(tasks(4), "jobs: {}")
    ids = [f"t{number}" for number in range(4)]
    carried = joined([with_begun(packed, ids, ["t0"]), with_begun(packed, ids, ["t0", "t2"]), "rubbish"])
    assert carried is not None
    assert carried.text == "jobs: {}"
    assert list(left(carried, "t0", ["t1"])) == ["t3"]
    assert left(carried, "other", []) == {}


def test_a_thousand_jobs_fit_and_more_than_a_label_holds_is_not_carried():
    assert 0 < len(pack(tasks(1000), "")) < 20_000
    noise = base64.b85encode(bytes((number * number * 7919 + number) % 251 for number in range(4 * LONGEST))).decode()
    assert pack(tasks(1), "".join(f"{hash((number, noise))}" for number in range(20_000))) == ""


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "x" * (LONGEST + 1), base64.b85encode(b"x").decode(),
        base64.b85encode(zlib.compress(b'{"jobs": {"../x": {"command": ["a"]}}}')).decode(),
        base64.b85encode(zlib.compress(b'{"jobs": {"t1": {"command": []}}}')).decode(),
        base64.b85encode(zlib.compress(b'{"jobs": []}')).decode(),
        base64.b85encode(zlib.compress(b"[" * 10_000_000)).decode(),
        pack(tasks(2), "") + " zz", pack(tasks(2), "") + " ff",
    ],
)  # fmt: skip
def test_labels_are_untrusted(value):
    assert unpack(value) is None
