"""What a job of a workflow costs does not depend on how many jobs there are.

Nothing is timed: what counts is how many functions of Python are called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from agentless.controller.tasks.carried_workflows import CarriedWorkflows
from agentless.model.containers.launch import Launch
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_event import Assigned, Exited, Launched, Queued
from agentless.model.tasks.terms import Terms
from agentless.rules.workflows import carried
from agentless.stores.workflow_proof import WorkflowProof
from tests.pure.build import CID, NOW, placement, spec, task
from tests.pure.test_dependencies_hold import World
from tests.pure.test_docker_runtime import docker

FEW, MANY = 100, 200


def calls(do: Callable[[], object]) -> int:
    found = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return found


def jobs(count: int) -> list[Task]:
    """One that all others but the last require, which requires these."""
    names = [f"2{number:04}".translate(str.maketrans("01", "xz")) for number in range(count)]
    on = [(), *[names[:1]] * (count - 2), names[1:-1]]
    return [
        Task(
            name,
            replace(
                spec("true", name),
                job=Job("train", "w", workflow=names[0]),
                terms=Terms(requires=tuple(map(Requirement, requires))),
            ),
            names[0],
            "me@here",
            NOW,
        )
        for name, requires in zip(names, on, strict=True)
    ]


def run(world: World, some: list[Task]) -> None:
    """All at once, which end one by one."""
    world.ledger.apply_all({each.id: (Assigned(placement()), "its turn") for each in some})
    world.ledger.apply_all({each.id: (Launched(CID), "docker run") for each in some})
    for each in some:
        world.ledger.apply(each.id, Exited(0), "seen")


def test_the_ends_of_jobs_cost_each_the_same_however_many_there_are(tmp_path: Path) -> None:
    def whole(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        world, every = World(folder, None), jobs(count)

        def go() -> None:
            first = world.dependencies.first(every)
            world.ledger.add_all([(each, first.get(each.id) or Queued()) for each in every], "submitted")
            for some in (every[:1], every[1:-1], every[-1:]):
                run(world, some)
                world.settle()

        found = calls(go)
        assert not world.tasks.live
        return found

    assert whole(MANY) < 2.1 * whole(FEW)


def test_the_launch_of_a_job_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    def launch(count: int) -> int:
        every, at = jobs(count), placement()
        tasks: Any = SimpleNamespace(
            history=SimpleNamespace(batch=lambda _: []), in_batch=lambda _: every, controller="c", live={}
        )
        none: Any = SimpleNamespace(get=lambda _: None, subscribe=lambda *_: None, now=lambda: NOW)
        carrying = CarriedWorkflows(tasks, none, WorkflowProof(tmp_path / "keys", tmp_path / "state"), none, none)
        one = replace(task("t1"), spec=every[1].spec)
        engine = docker()

        def go() -> None:
            engine.launches([Launch(one, at, labels=carrying.labels(one))])

        go()  # the first one packs the jobs, and compiles the templates
        assert len(carrying.labels(one)[carried.JOBS]) > 5 * count
        return calls(go)

    assert launch(MANY) < launch(FEW) + 50
