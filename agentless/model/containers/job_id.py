"""The ids of jobs of a cluster, which take the place of container ids: `4711:agentless-2mxf`."""

from __future__ import annotations

import re

_JOB = re.compile(r"([0-9]+(?:_[0-9]+)?):agentless-.+")


def job_number(word: str | None) -> str | None:
    """The number of the job that this id means, None if it is that of a container."""
    match = _JOB.fullmatch(word or "")
    return match[1] if match else None


def login_node(cluster: str) -> str:
    """The id that stands for the login node of a cluster, beside all jobs: it has no name of a job."""
    return f"{cluster}:"
