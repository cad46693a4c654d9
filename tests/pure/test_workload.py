"""What a kind of workload decides of the life of a task. `session` is a kind that answers everything otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import IllegalMove, UsageError
from agentless.model.containers.claim import SPEC, labels_of, task_of
from agentless.model.tasks import spec as specs
from agentless.model.tasks.retention import Keep
from agentless.model.tasks.spec import TaskSpec, check_spec
from agentless.model.tasks.task import Ended, Task
from agentless.model.tasks.task_event import Exited, LostContact, TaskEvent
from agentless.model.tasks.terms import Terms
from agentless.model.tasks.workload import WORKLOADS, Workload
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.reconcile import reconcile
from agentless.rules.tasks.retention import Chores, chores
from agentless.rules.tasks.retry import another_try
from tests.pure.build import NOW, container, placement, spec, task

SESSION = Workload(needs_command=False, ends_with_process=False, is_retried=False, expires=False)


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Mapping[str, Workload] = {**WORKLOADS, "session": SESSION}
    monkeypatch.setattr(specs, "WORKLOADS", known)


def session(state: str = "running", **fields: Any) -> Task:
    made = task(state=state, spec=spec(**fields))
    return replace(made, spec=as_session(made.spec))


def as_session(plain: TaskSpec) -> TaskSpec:
    kind: Any = "session"
    return replace(plain, workload=kind)


def test_a_spec_that_names_none_is_a_task() -> None:
    assert spec().traits == WORKLOADS["task"]


def test_only_a_task_needs_a_command() -> None:
    empty = TaskSpec((), image="busybox")
    check_spec(as_session(empty))
    with pytest.raises(UsageError, match="no command"):
        check_spec(empty)


def test_the_end_of_the_first_process_is_the_end_of_a_task_alone() -> None:
    ends = task()
    assert isinstance(apply(ends, Exited(0), NOW).status, Ended)
    with pytest.raises(IllegalMove):
        apply(session(), Exited(0), NOW)


def exits(one: Task) -> list[TaskEvent]:
    return [event for event in reconcile(one, container(one, "exited"), NOW) if isinstance(event, Exited)]


def test_a_node_that_shows_an_exited_container_ends_a_task_alone() -> None:
    assert (len(exits(task())), exits(session())) == (1, [])


def test_only_a_task_is_tried_again() -> None:
    terms = Terms(retries=3, retry_on=("lost",))
    tries = [
        another_try(one, apply(one, LostContact("cut off"), NOW), NOW) is not None
        for one in (task(spec=spec(terms=terms)), session(terms=terms))
    ]
    assert tries == [True, False]


def kept(one: Task) -> Chores:
    """The chores long after its end."""
    status = one.status
    assert isinstance(status, Ended)
    old = replace(one, status=replace(status, ended_at=NOW - 7200, run=NOW - 7260))
    found_container = container(old, "exited", id=old.container)
    return chores([replace(found_container, started_at=NOW - 7260)], (), {old.id: old}, {old.id}, NOW, Keep(3600))


def test_only_the_container_of_a_task_is_removed_some_time_after_the_end() -> None:
    assert [len(kept(one).remove) for one in (task(state="ended"), session("ended"))] == [1, 0]


def test_the_label_of_a_task_is_as_early_versions_wrote_it() -> None:
    whole = labels_of(task(), placement(), "c1")[SPEC]
    assert "workload" not in whole


def test_a_container_of_a_kind_that_is_unknown_here_holds_its_gpus() -> None:
    """A newer version may know the kind."""
    one = task()
    found_container = container(one, "running")
    labels = {
        **found_container.labels,
        SPEC: found_container.labels[SPEC].replace('"command"', '"workload":"later","command"', 1),
    }
    found = task_of(replace(found_container, labels=labels), "node1", NOW)
    assert found is not None
    assert found.placement is not None
    assert found.placement.gpu_uuids == placement().gpu_uuids
