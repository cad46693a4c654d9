"""What a task waits for that its cluster can wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.engines.slurm.options import dependency_options
from agentless.errors import IllegalMove
from agentless.model.containers.container import Container
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Blocked, Placement, Running, Submitted, Task
from agentless.model.tasks.task_event import Assigned, JobQueued, Unplaced
from agentless.rules.tasks.awaited_jobs import MOST, jobs_awaited
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.reconcile import reconcile
from tests.pure.build import NOW, task

ON = (Requirement("2first"), Requirement("2other", "ended"))
FIRST = replace(task("2first", "hpc"), status=Submitted(Placement("hpc"), "7_3:agentless-2first", NOW))
OTHER = replace(task("2other", "hpc"), status=Running(Placement("hpc"), "8:agentless-2other", NOW))


def waits(*on: Requirement, **terms: Any) -> Task:
    plain = task("2next", "hpc")
    spec = replace(plain.spec, terms=replace(plain.spec.terms, requires=on, **terms))
    return replace(plain, status=Blocked(on), spec=spec)


def awaited(wanted: Task, first: Task | None = FIRST) -> tuple[str, ...]:
    return jobs_awaited(wanted, "hpc", {"2first": first, "2other": OTHER}.get)


def tried(**terms: Any) -> Task:
    return replace(FIRST, spec=replace(FIRST.spec, terms=replace(FIRST.spec.terms, **terms)))


def test_slurm_waits_for_the_jobs_of_the_tasks() -> None:
    assert awaited(waits(*ON)) == ("afterok:7_3", "afterany:8")
    assert dependency_options(("afterok:7_3", "afterany:8")) == [
        "--dependency=afterok:7_3,afterany:8", "--kill-on-invalid-dep=yes",
    ]  # fmt: skip
    assert dependency_options(()) == []


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (None, "has ended"),
        (replace(FIRST, status=Submitted(Placement("other"), "7:agentless-2first", NOW)), "is on another cluster"),
        (replace(FIRST, status=Running(Placement("hpc"), "c0ffee", NOW)), "has no job"),
        (replace(FIRST, status=Blocked(())), "has no job yet"),
        (replace(FIRST, stop="stop"), "is being stopped"),
        (tried(retries=1), "may be tried again"),
        (tried(preemptible=True), "may give way and come back"),
    ],
)
def test_our_queue_waits_for_one_that(first: Task | None, why: str) -> None:
    assert awaited(waits(*ON), first) == (), why


@pytest.mark.parametrize(
    "wanted",
    [
        waits(Requirement("2first", "failed"), *ON),
        waits(Requirement("2first", batch=True, members=1)),
        waits(Requirement("2first", one_of=1), Requirement("2other", one_of=1)),
        waits(*ON, if_impossible="wait"),
        waits(*ON, wait_for=60.0),
        waits(*ON, start_at=NOW + 60),
        waits(*ON, max_parallel=1),
        waits(*ON * MOST),
        replace(waits(*ON), stop="stop"),
        task("2next", "hpc"),
    ],
)
def test_what_slurm_cannot_say_is_waited_for_here(wanted: Task) -> None:
    assert awaited(wanted) == ()


def test_one_that_its_cluster_has_refused_waits_again() -> None:
    there = Assigned(Placement("hpc", after=("afterok:7",)))
    assert apply(apply(waits(*ON), there, NOW), Unplaced("busy"), NOW).status == Blocked(ON)
    with pytest.raises(IllegalMove, match="does not wait in its place"):
        apply(waits(*ON), Assigned(Placement("hpc")), NOW)


def test_a_job_that_slurm_holds_for_the_other_one_is_no_news_and_any_other_reason_is() -> None:
    after = Placement("hpc", after=("afterok:7",))
    queued = replace(waits(*ON), status=Submitted(after, "9:agentless-2next", NOW))
    job = Container("9:agentless-2next", "agentless-2next", "queued", error="waits for another job", awaits=True)
    assert reconcile(queued, job, NOW) == ()
    held = replace(job, error="is held", awaits=False)
    assert reconcile(queued, held, NOW) == (JobQueued(job.id, "is held"),)
    alone = replace(queued, status=Submitted(Placement("hpc"), job.id, NOW))  # somebody has changed its job
    assert reconcile(alone, job, NOW) == (JobQueued(job.id, "waits for another job"),)


def test_a_job_that_waited_in_vain_ends_as_the_task_does_that_it_waited_for() -> None:
    """Slurm may cancel it before the end of the other one is seen."""
    job = Container("9:agentless-2next", "agentless-2next", "exited", {}, error="in vain", outcome="cancelled")
    after = Submitted(Placement("hpc", after=("afterok:7",)), job.id, NOW)
    assert reconcile(replace(waits(*ON), status=after), job, NOW) == (JobQueued(job.id, "in vain"),)
    taken = replace(waits(*ON), status=Submitted(Placement("hpc"), job.id, NOW))  # from its labels
    for event in reconcile(taken, job, NOW):
        taken = apply(taken, event, NOW)
    assert (taken.state, taken.status.reason) == ("cancelled", "in vain")  # type: ignore[union-attr]
