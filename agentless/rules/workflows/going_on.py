"""Which jobs of a workflow go on after the state was lost, by what the labels on the nodes say.

Labels stay behind, are copied and forged, and containers are removed. So a job goes on by itself only if it cannot
have started: it requires a job that has not ended, and the label of that one, which was written when it was launched,
says that the job had not begun. All others are for a person to decide. A gang is one job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task_id import first_try
from agentless.rules.tasks.dependencies import Standing, groups, still_left, together, verdict, why_impossible
from agentless.rules.workflows.carried import COMPLETED, FAILED, OTHER, WAITING, Carried, Head, digest

LATE = 60.0
"""Seconds after its launch was rendered in which a container starts. Of a slower one, nothing goes on by itself."""
EARLY = 60.0
"""Seconds by which the clocks may differ in the other direction."""
_UNSIGNED = 100
"""Heads without a signature that are looked at, the newest ones, for each digest: anybody can write many."""
_ENDS = {COMPLETED: "completed", FAILED: "failed", OTHER: "stopped"}

Decision = Literal["goes_on", "ask", "cannot"]


@dataclass(frozen=True, slots=True)
class Found:
    """A head that was found: on this container, which is of this task on this node.

    `signed`: with our key, for this task there. `runs`: the container has not ended; `again`: but it had, before it was
    started again. `started_at` is its last start (Unix seconds, our clock).
    """

    head: Head
    task: str
    node: str
    container: str
    signed: bool = False
    runs: bool = False
    again: bool = False
    started_at: float | None = None

    @property
    def proves(self) -> bool:
        """Whether its task has not ended: the container runs, and was started once, at the launch.

        A copy of the labels on another container is later, and so is a container that was started again.
        """
        if not self.signed or not self.runs or self.again or self.started_at is None:
            return False
        return -EARLY <= self.started_at - self.head.at <= LATE


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workflow as some labels have it: `carried` by the newest of them. Either all of `found` are signed, or none."""

    carried: Carried
    found: tuple[tuple[Found, Mapping[str, str]], ...]
    """Each with the letters of its head, by job."""

    @property
    def head(self) -> Head:
        """The newest one."""
        return self.found[-1][0].head

    @property
    def signed(self) -> bool:
        """Whether this controller has written it."""
        return self.found[0][0].signed

    @property
    def digest(self) -> str:
        """What a person compares."""
        return digest(self.head)


@dataclass(frozen=True, slots=True)
class Known:
    """What else is known, by ids of first tries.

    `started`: a container names it, anywhere, by whatever labels. `tasks` are those that this controller has, or gets
    by this recovery, `running` those of them that have not ended. `stopped` are jobs that were stopped, or ended
    without a start; None if that record was lost, or is an old copy.
    """

    started: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    stopped: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Left:
    """A job that had not begun, what becomes of it, and why it does not go on by itself.

    `requires` are those of its requirements that are not met yet.
    """

    id: str
    spec: TaskSpec
    decision: Decision
    why: str = ""
    requires: tuple[Requirement, ...] = ()


def candidates(found: Iterable[Found], carried: Mapping[str, Carried | None]) -> list[Candidate]:
    """The workflows in these heads, `carried` by the digests of their jobs. What contradicts itself is left out.

    What is signed is one candidate, and the only one of its workflow. What is not is one for each digest.
    """
    groups: dict[tuple[str, str], list[tuple[Found, Mapping[str, str]]]] = {}
    alike: dict[tuple[str, str], Mapping[str, str]] = {}
    whole, signed = dict[tuple[str, str, str], bool](), set[str]()
    for each in _bounded(found):
        jobs = carried.get(each.head.jobs)
        if jobs is None:
            continue
        about = each.head.jobs, each.head.workflow, each.head.name
        if about not in whole:
            whole[about] = _are_of(jobs, each.head)
        if not whole[about] or len(each.head.states) != len(jobs.jobs) or first_try(each.task) not in jobs.jobs:
            continue
        said = each.head.jobs, each.head.states
        letters = alike.get(said) or alike.setdefault(said, dict(zip(jobs.jobs, each.head.states, strict=True)))
        groups.setdefault((each.head.workflow, "" if each.signed else digest(each.head)), []).append((each, letters))
        if each.signed:
            signed.add(each.head.workflow)
    return [
        Candidate(jobs, tuple(group))
        for (workflow, which), group in sorted(groups.items())
        if (not which or workflow not in signed) and (jobs := carried[group[-1][0].head.jobs])
    ]


def jobs_left(candidate: Candidate, known: Known) -> list[Left]:
    """The jobs that had not begun, each behind those that it requires."""
    letters, proofs, jobs = _joined(candidate), _proofs(candidate), candidate.carried.jobs
    gone = known.started | known.tasks | (known.stopped or frozenset())
    sure, added, asked, found = set[str](), set[str](), set[str](), list[Left]()
    for key, spec in jobs.items():
        unit = members_of(jobs, key)
        left = [each for each in unit if letters.get(each, WAITING) == WAITING and each not in gone]
        if key != unit[0] or not left:
            continue  # what becomes of a gang is decided with its first member
        if _cannot_have_started(proofs, jobs, unit, spec, known, sure):
            sure.update(unit)
        requires, why = _requires(candidate, spec, letters, known, added | asked)
        why = why or next(filter(None, (_lost(jobs[each], signed=candidate.signed) for each in unit)), "")
        decision: Decision = "cannot"
        if len(left) < len(unit):
            why = "it has begun on another of its nodes"
        elif not why:
            why = _doubt(candidate, key, requires, known, sure, asked)
            decision = "ask" if why else "goes_on"
            (asked if why else added).update(unit)
        found += [Left(each, jobs[each], decision, why, requires) for each in left]
    return found


def members_of(jobs: Mapping[str, TaskSpec], key: str) -> tuple[str, ...]:
    """The members of the gang of a task, by rank; of any other task itself."""
    spec = jobs.get(key)
    return spec.gang.members if spec and spec.gang else (key,)


# ---------------------------------------------------------------------- inside


def _bounded(found: Iterable[Found]) -> list[Found]:
    """The heads, the newest one last, with a bounded number of those that prove nothing."""
    counts, kept = Counter[str](), list[Found]()
    for each in sorted(found, key=lambda one: (one.head.at, one.container), reverse=True):
        if not each.signed:
            counts[each.head.jobs] += 1
        if each.signed or counts[each.head.jobs] <= _UNSIGNED:
            kept.append(each)
    return kept[::-1]


def _are_of(carried: Carried, head: Head) -> bool:
    """Whether all jobs are of the workflow of this head."""
    of = head.workflow, head.name
    return all(spec.job and (spec.job.workflow, spec.job.of) == of for spec in carried.jobs.values())


def _joined(candidate: Candidate) -> dict[str, str]:
    """What all heads say together: what had begun once has begun, and the newest one knows how it has ended."""
    letters: dict[str, str] = {}
    for said in {id(said): said for _, said in reversed(candidate.found)}.values():
        for key, letter in said.items():
            if letter != WAITING:
                letters.setdefault(key, letter)
    return letters


def _proofs(candidate: Candidate) -> dict[str, list[Mapping[str, str]]]:
    """What the heads of jobs say that have not ended, by job. Copies of a head say it once."""
    found = {(first_try(each.task), id(said)): said for each, said in candidate.found if each.proves}
    proofs: dict[str, list[Mapping[str, str]]] = {}
    for (job, _), said in found.items():
        proofs.setdefault(job, []).append(said)
    return proofs


def _cannot_have_started(
    proofs: Mapping[str, Iterable[Mapping[str, str]]],
    jobs: Mapping[str, TaskSpec],
    unit: Collection[str],
    spec: TaskSpec,
    known: Known,
    sure: Collection[str],
) -> bool:
    """Whether a job waits for one that has not ended, or that cannot have started either."""
    waited = {task for each in spec.terms.requires if not each.batch for task in members_of(jobs, each.on)}
    return not waited.isdisjoint(sure) or any(
        all(said.get(task) == WAITING for task in unit) for on in waited & known.running for said in proofs.get(on, ())
    )


def _requires(
    candidate: Candidate, spec: TaskSpec, letters: Mapping[str, str], known: Known, added: Collection[str]
) -> tuple[tuple[Requirement, ...], str]:
    """What is left of its requirements, and why one of them cannot be met, or is not known to be."""
    left, jobs = list[Requirement](), candidate.carried.jobs
    for group in groups(spec.terms.requires):
        standings = list[Standing]()
        for each in group:
            if each.batch:
                return (), "requires a batch, which is not known"
            ends = {task: _ENDS.get(letters.get(task, "")) for task in members_of(jobs, each.on)}
            if any(not end and task not in known.tasks and task not in added for task, end in ends.items()):
                return (), f"requires task {each.on}, whose end is not known"
            standings.append(Standing())
            for task, end in ends.items():
                standings[-1].put(task, None if task in known.running else end)
        found = together(standings)
        result = verdict(group[0], found)
        if result == "impossible":
            return (), why_impossible(group[0], found)
        if result == "open":
            left += filter(None, still_left(group, standings, result))
            continue
        for each, standing in zip(group, standings, strict=True):
            before = jobs.get(each.on)
            if before is None or before.job is None or not before.job.artifacts:
                continue
            if standing.ends.keys() <= known.tasks and {*standing.ends.values()} == {"completed"}:
                left.append(each)  # its artifacts are fetched again
            elif each.state == "completed":
                return (), f"the artifacts of task {each.on} were lost"
    return tuple(left), ""


def _lost(spec: TaskSpec, *, signed: bool) -> str:
    """What a job needs that was lost with the state, or that only signed labels may ask for."""
    if spec.secret_env:
        return f"its secret {spec.secret_env[0]} was lost"
    if spec.uploads:
        return "its uploads were lost"
    if spec.outputs and not signed:
        return "it has outputs, and labels without a signature must not decide what is written here"
    return ""


def _doubt(
    candidate: Candidate,
    key: str,
    requires: Iterable[Requirement],
    known: Known,
    sure: Collection[str],
    asked: Collection[str],
) -> str:
    """Why a job does not go on by itself; empty if it does."""
    if not candidate.signed:
        return "not signed by this controller"
    if known.stopped is None:
        return "the record of stopped jobs was lost or is an old copy"
    if any(known.stopped & {*members_of(candidate.carried.jobs, each.on)} for each in requires):
        return "a job that it requires was stopped or preempted"
    if key not in sure:
        return "may have started already, and its container was removed"
    if any(each.on in asked for each in requires):
        return "requires a job that is not certain"
    return ""
