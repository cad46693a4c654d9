"""Kinds of workload, which differ in their life cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

WorkloadName = Literal["task", "vps"]
"""The name in the JSON of a spec. A new kind gets a new name."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of workload.

    `needs_command`: it requires a command. `ends_with_process`: it ends with its first process, with that exit code;
    otherwise it keeps its allocation. `is_retried`: its terms may request retries. `expires`: its container is removed
    some time after its end, by the retention policy. `comes_back`: its container is started again after a reboot of its
    node, and on request.
    """

    needs_command: bool
    ends_with_process: bool
    is_retried: bool
    expires: bool
    comes_back: bool = False


WORKLOADS: Mapping[WorkloadName, Workload] = {
    "task": Workload(needs_command=True, ends_with_process=True, is_retried=True, expires=True),
    "vps": Workload(needs_command=False, ends_with_process=True, is_retried=False, expires=False, comes_back=True),
}
