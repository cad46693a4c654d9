"""Python programs over the death of the controller: kill -9 while they wait, read a log, or submit."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentless import AgentlessError, Cluster, Task
from agentless.demo.fleet import NodePlan
from tests.fleet.client import PATIENCE
from tests.fleet.inhabited import end_controller, inhabited

LINES = "n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo $n; sleep 0.01; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with inhabited(tmp_path_factory.mktemp("api"), [NodePlan("n1", 4)]):
        yield Cluster()


@pytest.mark.slow
def test_a_wait_goes_on_over_several_deaths(cluster):
    task = cluster.submit("sh", "-c", "sleep 600 & wait", target="n1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(task.wait)
        for _ in range(2):
            end_controller(signal.SIGKILL)
            assert task.refresh().state == "running"
        assert not waiting.done()
        task.kill()
        assert waiting.result(PATIENCE).state == "killed"


@pytest.mark.slow
def test_a_log_that_is_followed_has_every_line_once_and_in_order(cluster):
    task = cluster.submit("sh", "-c", LINES, target="n1")
    seen = []
    for line in task.logs(follow=True):
        seen.append(line)
        if len(seen) in (20, 100):
            end_controller(signal.SIGKILL)
    assert seen == [str(number) for number in range(1, 201)]
    assert task.wait().state == "completed"


async def test_so_has_one_that_is_followed_without_blocking(cluster):
    task = await cluster.submit.aio("sh", "-c", LINES, target="n1")
    seen = []
    async for line in task.logs.aio(follow=True):
        seen.append(line)
        if len(seen) == 20:
            await asyncio.to_thread(end_controller, signal.SIGKILL)
    assert seen == [str(number) for number in range(1, 201)]


@pytest.mark.parametrize(
    "after", [0.02, 0.1, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.0, 0.05, 0.2))]
)
def test_a_submit_gives_its_task_which_was_started_once(cluster, after):
    """However far it was when the controller died: before the task was on disk, or while its node was asked."""
    name, found = f"once-{after}", list[Task | AgentlessError]()

    def submit() -> None:
        try:
            found.append(cluster.submit("sleep", "600", target="n1", name=name))
        except AgentlessError as error:
            found.append(error)

    submitting = threading.Thread(target=submit)
    cluster.controller()
    submitting.start()
    time.sleep(after)  # any moment will do: whichever it is, what is told has to be true
    end_controller(signal.SIGKILL)
    submitting.join(PATIENCE)
    (task,) = found
    assert isinstance(task, Task), task
    assert [each.id for each in cluster.tasks(all=True) if each.name == name] == [task.id]
    assert task.kill().state == "killed"


def test_what_is_asked_next_is_answered_by_a_new_controller(cluster):
    before = cluster.controller().pid
    end_controller(signal.SIGKILL)
    assert [node.name for node in cluster.nodes()] == ["n1"]
    assert cluster.controller().pid != before
