"""Which jobs go on, by labels: whatever happened before and whatever an attacker did, none that has run or was stopped.

A workflow is played, with everything that a controller writes into labels. Then somebody who may use the engines, but
has no key, does what they can: remove containers, start them again, copy labels, write others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.tasks.gang import Gang
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import CONDITIONS, Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from agentless.rules.tasks.dependencies import Standing, verdict
from agentless.rules.workflows.carried import Carried, Head
from agentless.rules.workflows.going_on import LATE, Found, Known, candidates, jobs_left

ENDS = {"c": "completed", "f": "failed", "o": "stopped"}


def job(number, *requires, **more):
    return TaskSpec(("true",), job=Job(f"j{number}", "w", workflow="t0"), terms=Terms(requires=requires), **more)


def found_of(*letters, task="t0", at=100.0, jobs="d", **how):
    """A head with these letters, on the container of a task that runs; `how` it differs."""
    usual = {"signed": True, "runs": True, "started_at": at + 1}
    return Found(Head("t0", "w", "ann", "c", at, "".join(letters), jobs), task, "n1", f"{task}-{at}", **usual | how)


def decided(jobs, found, known):
    (of,) = candidates(found, {"d": Carried(jobs)})
    return {each.id: (each.decision, each.why) for each in jobs_left(of, known)}


@dataclass
class World:
    """The workflow as it really was, and the containers that there are."""

    jobs: dict[str, TaskSpec]
    now: float = 1000.0
    letters: dict[str, str] = field(default_factory=dict)
    containers: list[Found] = field(default_factory=list)
    launched: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)

    def of(self, key, end=None):
        standing = Standing()
        standing.put(key, end or ENDS.get(self.letters[key]))
        return standing

    def is_met(self, key):
        return all(verdict(each, self.of(each.on)) == "met" for each in self.jobs[key].terms.requires)

    def launch(self, key):
        if self.letters[key] == "." and key not in self.stopped and self.is_met(key):
            self.letters[key] = "b"
            self.launched.add(key)
            head = Head("t0", "w", "ann", "c", self.now, "".join(self.letters.values()), "d", len(self.stopped))
            one = Found(head, key, "n1", f"{key}-{len(self.containers)}", True, True, False, self.now + 1)
            self.containers.append(one)

    def end(self, key, letter):
        if self.letters[key] == "b":
            self.letters[key] = "o" if key in self.stopped else letter
            self.containers = [replace(c, runs=False) if c.task == key else c for c in self.containers]
            self.cascade()

    def stop(self, key):
        """What runs is stopped after its grace, what waits at once."""
        if self.letters[key] in ".b":
            self.stopped.add(key)
            if self.letters[key] == ".":
                self.letters[key] = "o"
                self.cascade()

    def cascade(self):
        for key, spec in self.jobs.items():
            impossible = any(verdict(each, self.of(each.on)) == "impossible" for each in spec.terms.requires)
            if self.letters[key] == "." and impossible:
                self.letters[key] = "o"
                self.stopped.add(key)

    def tamper(self, how, number):
        """What somebody with Docker, and without the key, can do to a container."""
        if not self.containers:
            return
        place = number % len(self.containers)
        one = self.containers[place]
        if how == "remove" and not one.runs:
            del self.containers[place]
        elif how == "start" and not one.runs:
            self.containers[place] = replace(one, runs=True, again=True, started_at=self.now)
        elif how == "copy":
            self.now = max(self.now, one.head.at + LATE + 1)
            self.containers.append(replace(one, container=f"evil{self.now}", runs=True, started_at=self.now))
        elif how == "forge":
            head = replace(one.head, states="." * len(self.jobs), at=self.now)
            forged = replace(one, head=head, container=f"evil{self.now}", signed=False, runs=True, started_at=self.now)
            self.containers.append(forged)


@st.composite
def graphs(draw):
    jobs = {}
    for number in range(draw(st.integers(1, 6))):
        on = draw(st.lists(st.sampled_from(sorted(jobs)), max_size=2, unique=True)) if jobs else []
        jobs[f"t{number}"] = job(number, *(Requirement(key, draw(st.sampled_from(CONDITIONS))) for key in on))
    return jobs


DEEDS = st.tuples(
    st.sampled_from(["launch"] * 4 + ["c", "f", "c", "stop", "remove", "start", "copy", "forge"]),
    st.integers(0, 20),
    st.sampled_from([1.0, 100.0]),
)


def known_of(world):
    """The most that a person can be led to recover: all that any container names."""
    named = frozenset(each.task for each in world.containers)
    running = frozenset(each.task for each in world.containers if each.runs)
    return Known(named, named, running, frozenset(world.stopped))


def play(world, deeds):
    for what, number, later in deeds:
        key = sorted(world.jobs)[number % len(world.jobs)]
        world.now += later
        if what == "launch":
            world.launch(key)
        elif what in "cf":
            world.end(key, what)
        elif what == "stop":
            world.stop(key)
        else:
            world.tamper(what, number)


@settings(max_examples=80, deadline=None)
@given(graphs(), st.lists(DEEDS, max_size=25))
def test_nothing_goes_on_that_has_run_or_was_stopped(jobs, deeds):
    world = World(jobs, letters=dict.fromkeys(jobs, "."))
    play(world, deeds)
    for of in candidates(world.containers, {"d": Carried(jobs)}):
        for each in jobs_left(of, known_of(world)):
            if each.decision == "goes_on":
                assert each.id not in world.launched
                assert world.letters[each.id] == "."
                assert all(one.on in known_of(world).tasks or world.letters[one.on] == "." for one in each.requires)


@settings(max_examples=25, deadline=None)
@given(graphs(), st.lists(DEEDS, max_size=25))
def test_without_tampering_all_that_waits_for_what_runs_goes_on(jobs, deeds):
    world = World(jobs, letters=dict.fromkeys(jobs, "."))
    play(world, [each for each in deeds if each[0] in ("launch", "c", "f")])
    running = {key for key, letter in world.letters.items() if letter == "b"}
    goes_on = {
        each.id
        for of in candidates(world.containers, {"d": Carried(jobs)})
        for each in jobs_left(of, known_of(world))
        if each.decision == "goes_on"
    }
    direct = {
        key
        for key, letter in world.letters.items()
        if letter == "." and jobs[key].terms.requires and {each.on for each in jobs[key].terms.requires} <= running
    }
    assert direct <= goes_on


@settings(max_examples=25, deadline=None)
@given(graphs(), st.lists(DEEDS, max_size=25))
def test_without_a_signature_or_the_record_of_stops_nothing_goes_on_by_itself(jobs, deeds):
    world = World(jobs, letters=dict.fromkeys(jobs, "."))
    play(world, deeds)
    unsigned = [replace(each, signed=False) for each in world.containers]
    for of in candidates(unsigned, {"d": Carried(jobs)}):
        assert {each.decision for each in jobs_left(of, known_of(world))} <= {"ask", "cannot"}
    for of in candidates(world.containers, {"d": Carried(jobs)}):
        known = replace(known_of(world), stopped=None)
        assert {each.decision for each in jobs_left(of, known)} <= {"ask", "cannot"}


CHAIN = {"t0": job(0), "t1": job(1, Requirement("t0")), "t2": job(2, Requirement("t1", "ended"))}
RUNS = Known(frozenset({"t0"}), frozenset({"t0"}), frozenset({"t0"}))
DOUBT = "may have started already, and its container was removed"


def test_what_waits_for_a_job_that_runs_goes_on_and_so_does_what_waits_for_that():
    assert decided(CHAIN, [found_of("b", ".", ".")], RUNS) == {"t1": ("goes_on", ""), "t2": ("goes_on", "")}


@pytest.mark.parametrize(
    "how",
    [{"again": True}, {"started_at": 100.0 + LATE + 1}, {"started_at": 0.0}, {"started_at": None}, {"runs": False}],
)
def test_a_container_that_was_started_again_or_later_proves_nothing(how):
    assert decided(CHAIN, [found_of("b", ".", ".", **how)], RUNS)["t1"] == ("ask", DOUBT)


def test_a_head_without_a_signature_proves_nothing():
    assert found_of("b", ".").proves
    assert not found_of("b", ".", signed=False).proves


def test_a_head_that_does_not_know_a_job_proves_nothing_about_it():
    """After a recovery, containers carry only the jobs that were known then."""
    few = {key: CHAIN[key] for key in ("t0", "t1")}
    found = [found_of("b", ".", jobs="few"), found_of("b", ".", ".", task="t1", at=200.0, runs=False)]
    jobs = CHAIN | {"t2": job(2, Requirement("t0"))}
    (of,) = candidates(found, {"d": Carried(jobs), "few": Carried(few)})
    assert {each.id: each.decision for each in jobs_left(of, RUNS)} == {"t1": "goes_on", "t2": "ask"}


def test_a_label_that_is_newer_wins_over_one_that_says_a_job_had_not_begun():
    newer = found_of("b", "b", ".", task="t1", at=200.0, runs=False)
    assert decided(CHAIN, [newer, found_of("b", ".", ".")], RUNS) == {
        "t2": ("cannot", "requires task t1, whose end is not known")
    }


def test_what_a_forged_label_says_changes_nothing_where_there_is_a_signed_one():
    forged = found_of("b", "c", "c", at=300.0, signed=False)
    others = found_of("b", ".", ".", at=300.0, jobs="evil", signed=False)
    found = candidates([forged, found_of("b", ".", "."), others], {"d": Carried(CHAIN), "evil": Carried(CHAIN)})
    assert [of.signed for of in found] == [True]
    assert [each.decision for each in jobs_left(found[0], RUNS)] == ["goes_on", "goes_on"]


def test_a_job_that_any_container_names_has_started():
    known = replace(RUNS, started=frozenset({"t0", "t1"}))
    assert decided(CHAIN, [found_of("b", ".", ".")], known) == {
        "t2": ("cannot", "requires task t1, whose end is not known")
    }


def test_jobs_that_were_stopped_are_left_out_and_what_requires_them_does_not_go_on():
    jobs = CHAIN | {"t3": job(3, Requirement("t0", "ended"))}
    known = replace(RUNS, stopped=frozenset({"t1"}))
    found = decided(jobs, [found_of("b", ".", ".", ".")], known)
    assert found["t3"] == ("goes_on", "")
    assert (set(found), found["t2"][0]) == ({"t2", "t3"}, "cannot")
    known = replace(RUNS, stopped=frozenset({"t0"}))
    assert decided(CHAIN, [found_of("b", ".", ".")], known)["t1"] == (
        "ask",
        "a job that it requires was stopped or preempted",
    )


def test_what_was_lost_keeps_a_job_from_going_on():
    jobs = {"t0": job(0), "t1": job(1, Requirement("t0"), secret_env=("TOKEN",))}
    assert decided(jobs, [found_of("b", ".")], RUNS) == {"t1": ("cannot", "its secret TOKEN was lost")}


def test_an_end_that_was_signed_counts_though_the_container_is_gone():
    jobs = {"t0": job(0), "t1": job(1), "t2": job(2, Requirement("t0"), Requirement("t1"))}
    known = Known(frozenset({"t1"}), frozenset({"t1"}), frozenset({"t1"}))
    (of,) = candidates([found_of("c", "b", ".", task="t1")], {"d": Carried(jobs)})
    (left,) = jobs_left(of, known)
    assert (left.decision, left.requires) == ("goes_on", (Requirement("t1"),))
    assert decided(jobs, [found_of("f", "b", ".", task="t1")], known) == {
        "t2": ("cannot", "needs task t0 to complete, but it failed")
    }


ONE_FAILS = (Requirement("t0", "failed", one_of=1), Requirement("t1", "failed", one_of=1))


@pytest.mark.parametrize(
    ("letter", "left"),
    [("f", Requirement("t1", "ended")), ("c", ONE_FAILS[1]), ("o", ONE_FAILS[1])],
)
def test_a_job_goes_on_that_requires_one_failure_of_several(letter, left):
    jobs = {"t0": job(0), "t1": job(1), "t2": job(2, *ONE_FAILS)}
    known = Known(frozenset({"t1"}), frozenset({"t1"}), frozenset({"t1"}))
    (of,) = candidates([found_of(letter, "b", ".", task="t1")], {"d": Carried(jobs)})
    (one,) = jobs_left(of, known)
    assert (one.decision, one.requires) == ("goes_on", (left,))


def test_a_job_cannot_go_on_if_none_of_several_failed():
    jobs = {"t0": job(0), "t1": job(1), "t2": job(2, *ONE_FAILS)}
    (one,) = jobs_left(candidates([found_of("c", "c", ".", task="t1")], {"d": Carried(jobs)})[0], Known())
    assert (one.decision, one.why) == ("cannot", "needs one of the tasks t0 and t1 to fail, but none failed")


@pytest.mark.parametrize("jobs", [{"t0": job(0)}, {"t1": job(1)}, {"t0": replace(job(0), job=Job("a", "other"))}])
def test_a_head_that_does_not_fit_its_jobs_is_left_out(jobs):
    assert candidates([found_of("b", ".")], {"d": Carried(jobs)}) == []


def pair(*requires, first=1):
    members = (f"t{first}", f"t{first + 1}")
    return {each: job(first, *requires, gang=Gang(2, rank, members)) for rank, each in enumerate(members)}


def test_a_gang_goes_on_as_a_whole_or_not_at_all():
    jobs = {"t0": job(0), **pair(Requirement("t0")), "t3": job(3, Requirement("t1"))}
    found = [found_of("b", ".", ".", ".")]
    assert set(decided(jobs, found, RUNS).values()) == {("goes_on", "")}
    for what in ({"started": frozenset({"t0", "t2"})}, {"stopped": frozenset({"t2"})}):
        left = decided(jobs, found, replace(RUNS, **what))
        assert left["t1"] == ("cannot", "it has begun on another of its nodes")
        assert left["t3"] == ("cannot", "requires task t1, whose end is not known")
    jobs["t2"] = replace(jobs["t2"], secret_env=("TOKEN",))
    assert decided(jobs, found, RUNS)["t1"] == ("cannot", "its secret TOKEN was lost")


def test_what_waits_for_a_gang_waits_for_all_of_its_members():
    jobs = {**pair(first=0), "t2": job(2, Requirement("t0"))}
    both = frozenset({"t0", "t1"})
    found = [found_of("b", "b", ".", task="t1")]
    assert decided(jobs, found, Known(both, both, frozenset({"t1"}))) == {"t2": ("goes_on", "")}
    one = frozenset({"t1"})
    assert decided(jobs, found, Known(one, one, one))["t2"] == ("cannot", "requires task t0, whose end is not known")
    found = [found_of("c", "f", ".", task="t1", runs=False)]
    assert decided(jobs, found, Known(both, both))["t2"] == ("cannot", "needs task t0 to complete, but it failed")


def test_artifacts_of_a_job_that_has_completed_are_fetched_again_or_known_to_be_lost():
    made = TaskSpec(("true",), job=Job("j0", "w", workflow="t0", artifacts=("out",)))
    jobs = {"t0": made, "t1": job(1), "t2": job(2, Requirement("t0"), Requirement("t1"))}
    found, both = [found_of("c", "b", ".", task="t1")], frozenset({"t0", "t1"})
    (of,) = candidates(found, {"d": Carried(jobs)})
    (left,) = jobs_left(of, Known(both, both, frozenset({"t1"})))
    assert (left.decision, left.requires) == ("goes_on", (Requirement("t0"), Requirement("t1")))
    one = frozenset({"t1"})
    assert decided(jobs, found, Known(one, one, one))["t2"] == ("cannot", "the artifacts of task t0 were lost")


def test_of_many_forged_heads_the_newest_are_looked_at_and_copies_take_no_memory():
    forged = [found_of("b", ".", ".", at=float(at), signed=False) for at in range(1000)]
    (of,) = candidates(forged, {"d": Carried(CHAIN)})
    assert [each.head.at for each, _ in of.found] == [float(at) for at in range(900, 1000)]
    copies = [replace(found_of("b", ".", "."), container=f"c{number}") for number in range(1000)]
    (of,) = candidates([*copies, *forged], {"d": Carried(CHAIN)})
    assert len({id(letters) for _, letters in of.found}) == 1
