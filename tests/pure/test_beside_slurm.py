"""What `make replay WHAT=--slurm` gives to Slurm and to a controller, and what it reads of Slurm's answers."""

from __future__ import annotations

import pytest

from tests.bench.outcomes import Outcome, Run, delays_of, judge
from tests.bench.sending import body
from tests.bench.simulation import Agentless, run
from tests.bench.slurm import arguments, outcomes, read, scheduling
from tests.bench.workload import Job, jobs, lending, spanning

PREEMPTED = """\
JobId=5 UserId=root(0) GroupId=root(0) Name=1 JobState=PREEMPTED Partition=lent TimeLimit=100 \
StartTime=2026-11-26T18:24:20 EndTime=2026-11-26T18:41:06 NodeList=n2 NodeCnt=1 ProcCnt=1 WorkDir=/ ReservationName= \
Tres=cpu=1,mem=1M,node=1,billing=1 Account= QOS= WcKey= Cluster=unknown SubmitTime=2026-11-26T18:24:18 \
EligibleTime=2026-11-26T18:24:20 DerivedExitCode=0:0 ExitCode=0:0
JobId=7 UserId=root(0) GroupId=root(0) Name=2 JobState=COMPLETED Partition=main TimeLimit=100 \
StartTime=2026-11-26T18:45:21 EndTime=2026-11-26T19:16:49 NodeList=n[1-2] NodeCnt=2 ProcCnt=2 WorkDir=/ \
ReservationName= Tres=cpu=2,mem=2M,node=2,billing=2 Account= QOS= WcKey= Cluster=unknown \
SubmitTime=2026-11-26T18:41:05 EligibleTime=2026-11-26T18:41:05 DerivedExitCode=0:0 ExitCode=0:0
JobId=5 UserId=root(0) GroupId=root(0) Name=1 JobState=COMPLETED Partition=lent TimeLimit=100 \
StartTime=2026-11-26T20:42:28 EndTime=2026-11-26T22:03:39 NodeList=n2 NodeCnt=1 ProcCnt=1 WorkDir=/ ReservationName= \
Tres=cpu=1,mem=1M,node=1,billing=1 Account= QOS= WcKey= Cluster=unknown SubmitTime=2026-11-26T18:45:21 \
EligibleTime=2026-11-26T18:47:22 DerivedExitCode=0:0 ExitCode=0:0
"""
"""As Slurm 22.05 wrote it."""

SDIAG = """\
Main schedule statistics (microseconds):
	Last cycle:   4200
	Mean cycle:   5105
	Mean depth cycle:  0

Backfilling stats
	Total cycles: 12
	Mean cycle:  1500000
"""
LENT = Job(1, 0, 1, 4800, 6000, preemptible=True)
GANG = Job(2, 1007, 8, 1800, 6001, nodes=2)


def test_a_run_is_read_with_its_times() -> None:
    first = read(PREEMPTED)[0]
    assert (first.name, first.state, first.began - first.submitted, first.ended - first.began) == (
        "1",
        "PREEMPTED",
        2,
        1006,
    )


def test_a_preempted_job_has_waited_since_it_came_until_the_run_that_ended_with_it() -> None:
    lent, _ = outcomes([LENT, GANG], read(PREEMPTED))
    assert ([run.lost for run in lent.runs], lent.waited) == ([True, False], 2 * 3600 + 18 * 60 + 10)


def test_times_are_counted_from_the_arrival_of_the_first_job() -> None:
    assert [each.arrived for each in outcomes([LENT, GANG], read(PREEMPTED))] == [0, 1007]


def test_a_job_that_spans_nodes_holds_all_its_gpus() -> None:
    assert [run.gpus for run in outcomes([LENT, GANG], read(PREEMPTED))[1].runs] == [8]


def test_sbatch_is_given_gpus_per_node_and_limits_in_minutes() -> None:
    given = arguments(GANG, 600)
    assert {"--nodes=2", "--gpus-per-node=4", "--time=101", "--partition=main"} <= set(given)
    assert given[-1] == "--wrap=exec sleep 3.0000"


def test_preemptible_work_has_a_partition_of_its_own() -> None:
    assert "--partition=lent" in arguments(LENT, 600)


def test_a_look_at_the_queue_is_read_from_sdiag() -> None:
    assert scheduling(SDIAG) == "main 0.0 s, backfill 1.5 s"


def test_a_controller_gets_a_job_that_spans_nodes_as_a_gang() -> None:
    sent = body(GANG)
    assert (sent["targets"], sent["spec"]["gang"]) == (["4x"], {"size": 2})


def test_a_controller_is_told_what_is_preemptible() -> None:
    assert [body(job)["spec"]["terms"]["preemptible"] for job in (LENT, GANG)] == [True, False]


def test_whoever_wants_more_gpus_than_a_node_has_spans_nodes() -> None:
    found = spanning(jobs("philly", 1, 100, 16, 0.9), 4)
    assert {(job.gpus, job.nodes) for job in found} == {(1, 1), (2, 1), (4, 1), (8, 2)}


def test_a_share_of_the_work_is_preemptible() -> None:
    drawn = jobs("philly", 1, 1000, 64, 0.9)
    lent = [job for job in lending(drawn, 1, 0.1) if job.preemptible]
    assert 0.1 <= sum(job.work for job in lent) / sum(job.work for job in drawn) < 0.12


def test_no_job_that_spans_nodes_is_preemptible() -> None:
    lent = lending(spanning(jobs("philly", 1, 1000, 64, 0.9), 4), 1, 0.1)
    assert {job.nodes for job in lent if job.preemptible} == {1}


def test_in_virtual_time_preemptible_work_gives_way_and_starts_again() -> None:
    whole = Job(3, 600, 4, 1800, 2000)
    lent, again, other = sorted(run([LENT, whole], Agentless([4])), key=lambda ran: (-ran.job.preemptible, ran.began))
    assert (lent.job, lent.began, lent.gave_way) == (LENT, 0, 600)
    assert (other.began, again.job, again.began, again.gave_way) == (600, LENT, 2400, None)


def test_in_virtual_time_all_nodes_of_a_job_begin_at_once() -> None:
    half = Job(1, 0, 2, 900, 1000)
    begun = {ran.job.number: ran.began for ran in run([half, GANG], Agentless([4, 4]))}
    assert begun == {1: 0, 2: 1007}


def test_lost_runs_are_use_and_told_apart() -> None:
    other = Outcome(Job(2, 100, 1, 10, 10), 100, (Run(100, 110, 1),))
    preempted = Outcome(LENT, 0, (Run(10, 40, 1, lost=True), Run(70, 100, 1)))
    found = judge([preempted, other], 1)
    assert (found.used, found.lost) == (pytest.approx(60 / 90), pytest.approx(0.5))
    assert found.preemptible is not None
    assert (found.firm.mean, found.preemptible.mean) == (0, 70)


def test_what_speed_makes_longer_is_told() -> None:
    free = Outcome(Job(-1, 0, 1, 0, 60), 0, (Run(1, 4, 1),))
    first = Outcome(Job(1, 0, 1, 50, 60), 0, (Run(0, 50, 1),))
    second = Outcome(Job(2, 10, 1, 50, 60), 10, (Run(57, 107, 1),))
    found = delays_of([free], [first, second])
    assert (found.start, found.held, found.next_start) == (1, 3, 7)
