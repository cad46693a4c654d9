"""Jobs as `squeue` and `sacct` list them. Pure parsing of text that others have a part in: bounded, and never trusted.

Text in place of `--json`: its form is the same from Slurm 20.11 on, while that of the JSON changes with each version,
and it takes slurmctld a fraction of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from agentless.model.text import cut, printable

FIELDS = ("JobArrayID", "State", "Reason", "exit_code", "SubmitTime", "StartTime", "EndTime", "NodeList")
"""What is asked of `squeue --Format`, before the name and the comment, which may have any character."""
ACCOUNTING = "JobID,State,Reason,ExitCode,Submit,Start,End,NodeList,JobName,Comment"
"""The same fields for `sacct --format`."""
MAX_JOBS = 20_000
"""The most jobs of one answer that are read."""

_OOM = 125
"""The signal that Slurm names for a kill for want of memory."""
_CODES = {"NODE_FAIL": 255, "BOOT_FAIL": 255, "PREEMPTED": 143}
"""The exit codes of jobs that Slurm has ended and may be tried again, where it has none itself; a node that goes down
gives a container 255, too."""
_ID = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10})?")
_STATE = re.compile(r"[A-Z_]{1,40}")
_WAITS = frozenset({
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "STAGE_IN",
})  # fmt: skip
_RUNS = frozenset({"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT"})
_PAUSED = frozenset({"SUSPENDED", "STOPPED"})


@dataclass(frozen=True, slots=True)
class Job:
    """A job of ours, or one element of an array (`12_3`). Times are Unix seconds, None if it has none.

    `start` of one that waits is when Slurm expects to start it. `signal` ended its script, 0: none did. `exit_code` is
    None where Slurm has one that no program can have. `noted` is the folder that has its number, empty if none has.
    """

    id: str
    state: str
    reason: str
    exit_code: int | None
    signal: int
    submitted: float | None
    start: float | None
    end: float | None
    nodes: str
    name: str
    comment: str
    noted: str = ""

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.state in _WAITS

    @property
    def awaits(self) -> bool:
        """Whether it waits for the end of other jobs."""
        return self.waits and self.reason == "Dependency"

    @property
    def is_held(self) -> bool:
        """Whether it waits for somebody to release it. Slurm may still have a start from before."""
        return self.waits and (self.state.endswith("_HOLD") or "held" in self.reason.lower())

    @property
    def runs(self) -> bool:
        """Whether it runs, or tidies up after its end."""
        return self.state in _RUNS

    @property
    def started(self) -> bool:
        """Whether it ever had nodes."""
        return not self.waits and bool(self.nodes)

    @property
    def is_paused(self) -> bool:
        """Whether it is suspended."""
        return self.state in _PAUSED

    @property
    def code(self) -> int | None:
        """The exit code as a shell has it, None if there is none. Where Slurm has ended a job, 0 means nothing."""
        if not (self.over and self.started):
            return None
        signal = 9 if self.signal == _OOM else self.signal
        code = 128 + signal if signal else self.exit_code
        return code if code or self.state == "COMPLETED" else _CODES.get(self.state)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return not (self.waits or self.runs or self.is_paused)


def squeue_format(mark: str) -> str:
    """What is asked of `squeue --Format`: behind the number of each job stands a mark, which no name can know."""
    first, *others = FIELDS
    return ",".join([f"{first}:|{mark}|", *(f"{field}:|" for field in (*others, "Name", "Comment"))])


def parse_jobs(text: str) -> Iterator[Job]:
    """The jobs in the answer of `squeue` or `sacct`. Lines that make no sense are left out."""
    return filter(None, map(_job, text.split("\n")[:MAX_JOBS]))


@lru_cache(MAX_JOBS)  # most lines are as in the look before
def _job(line: str) -> Job | None:
    noted = ""
    if line.startswith("noted|"):
        _, noted, line = [*line.split("|", 2), ""][:3]
    words = line.split("|", len(FIELDS) + 1)
    if len(words) != len(FIELDS) + 2:
        return None
    number, state, reason, code, submitted, start, end, nodes, name, comment = words
    state = state.partition(" ")[0]  # `CANCELLED by 1000`
    if not (_ID.fullmatch(number) and _STATE.fullmatch(state)):
        return None
    exit_code, signal = _ended(code)
    nodes = "" if nodes == "None assigned" else nodes
    why, where, called, said = (cut(printable(word), 200) for word in (reason, nodes, name, comment.rstrip("|")))
    return Job(
        number, state, why, exit_code, signal,
        _time(submitted), _time(start), _time(end), where, called, said, noted,
    )  # fmt: skip


def _ended(code: str) -> tuple[int | None, int]:
    """The exit code and the signal: `sacct` has them as `3:0`, `squeue` as the status of wait(2)."""
    first, colon, second = code.partition(":")
    if not re.fullmatch(r"[0-9]{1,9}", first) or (colon and not re.fullmatch(r"[0-9]{1,9}", second)):
        return 0, 0
    exit_code, signal = (int(first), int(second)) if colon else (int(first) >> 8, int(first) & 127)
    return (exit_code, signal) if max(exit_code, 2 * signal) < 256 else (None, 0)


def _time(word: str) -> float | None:
    return float(word) if re.fullmatch(r"[0-9]{1,11}", word) and int(word) else None
