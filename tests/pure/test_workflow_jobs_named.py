"""Jobs of a workflow are named on the command line as they are in a file."""

from __future__ import annotations

import pytest

from agentless.cli.workflows.show import check_jobs
from agentless.errors import UsageError

JOBS = [
    {"job": "train", "parameters": {"lr": lr, "seed": seed}, "task": {}} for lr in ("0.1", "0.2") for seed in ("1", "2")
] + [{"job": "eval", "parameters": {}, "task": {}}]


@pytest.mark.parametrize(
    ("names", "count"),
    [((), 5), (("train",), 4), (("train[lr=0.1]",), 2), (("train[lr=0.1,seed=2]", "eval"), 2), (("train[seed=2]",), 2)],
)
def test_a_job_is_named_with_all_some_or_none_of_its_values(names, count):
    assert len(check_jobs({"jobs": JOBS}, names)) == count


@pytest.mark.parametrize("name", ["nope", "train[lr=3]", "train[", ""])
def test_what_names_no_job_is_told(name):
    with pytest.raises(UsageError):
        check_jobs({"jobs": JOBS}, [name])
