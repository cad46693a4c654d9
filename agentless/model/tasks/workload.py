"""Kinds of workload: what differs in the life of a task, whatever its user asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

WorkloadName = Literal["task"]
"""What the JSON of a spec names; a new kind is a new name here."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of workload.

    `needs_command` is whether it has to be given a command. `ends_with_process` is whether the end of its first process
    is its own end, with that exit code; otherwise it keeps its allocation. `is_retried` is whether its terms may ask
    for another try, and `expires` whether its container is removed some time after its end, as `keep` has it.
    """

    needs_command: bool
    ends_with_process: bool
    is_retried: bool
    expires: bool


WORKLOADS: Mapping[WorkloadName, Workload] = {
    "task": Workload(needs_command=True, ends_with_process=True, is_retried=True, expires=True),
}
