"""`agentless nodes drain` and `resume`: what is asked of the controller, and what a person reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentless.cli.app import run
from agentless.cli.nodes import drain
from agentless.client.client import TRIES, Client, RequestFailed
from agentless.errors import ControllerError


def node(tasks: int | None, *, drained: bool = True, state: str = "drained") -> dict[str, Any]:
    return {"name": "node1", "state": state, "reason": "no route", "drained": drained, "tasks": tasks}


class Controller(Client):
    """Answers one after the other; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self._answers: Iterator[Any] = iter(answers)
        self.requests: list[tuple[str, Any]] = []

    def post(self, path: str, body: object = None, **_: object) -> Any:
        self.requests.append((path, body))
        return self._next()

    def get(self, _: str, **__: object) -> Any:
        return self._next()

    def _next(self) -> Any:
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Type a command to a controller that answers so: its exit code, stdout and stderr by lines."""

    def type_(words: str, *answers: Any) -> tuple[int, list[str], list[str], list[tuple[str, Any]]]:
        controller = Controller(*answers)
        monkeypatch.setattr(drain, "client", lambda _: controller)
        code = run(words.split())
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines(), controller.requests

    return type_


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (node(0), "node1: drained, no tasks running"),
        (node(1), "node1: drained, 1 task still running"),
        (node(2), "node1: drained, 2 tasks still running"),
        (node(None, state="offline"), "node1: drained, its tasks are unknown: no route"),
    ],
)
def test_a_drain_says_what_goes_on_there(said: Any, answer: Any, words: str) -> None:
    code, out, _, asked = said("nodes drain node1 --reason disks", answer)
    assert (code, out, asked) == (0, [words], [("/v1/nodes/node1/drain", {"reason": "disks"})])


def test_of_several_nodes_each_is_drained_although_one_is_not_there(said: Any) -> None:
    code, out, err, _ = said("nodes drain nodex node1", RequestFailed("no node 'nodex'", 2), node(0))
    assert (code, len(out), err) == (2, 1, ["agentless: no node 'nodex'"])


def test_who_waits_is_told_of_each_change_and_at_the_end(said: Any) -> None:
    answers = (node(2), node(2), node(2), node(None, state="offline"), node(1), node(0))
    code, out, err, _ = said("nodes drain node1 --wait", *answers)
    assert (code, out) == (0, ["node1: drained, 2 tasks still running", "node1: empty"])
    assert err == [
        "node1: its tasks are unknown: no route",
        "node1: 1 task still running",
    ]


def test_who_waits_does_so_over_a_controller_that_dies_and_comes_back(said: Any) -> None:
    died = ControllerError("it went away")
    assert said("nodes drain node1 --wait", node(1), died, died, node(0))[0] == 0
    assert said("nodes drain node1 --wait", node(1), *[died] * TRIES)[0] == 1


def test_who_waits_is_refused_when_the_node_is_resumed(said: Any) -> None:
    code, _, err, _ = said("nodes drain node1 --wait", node(1), node(1, drained=False))
    assert (code, err) == (3, ["agentless: node1 was resumed in the meantime; new tasks may have started there"])


def test_ctrl_c_leaves_it_drained_and_says_so(said: Any) -> None:
    code, _, err, _ = said("nodes drain node1 --wait", node(1), KeyboardInterrupt())
    assert (code, err[-1]) == (130, "Still drained: node1. To resume: agentless nodes resume NODE")


@pytest.mark.parametrize(
    ("words", "lifted", "out"),
    [
        ("nodes resume node1", ["was drained: disks"], "node1: resumed (was drained: disks)"),
        ("nodes resume node1", [], "node1: nothing to resume; not drained, and no GPU is unhealthy"),
        ("nodes resume node1 --gpu 2", [], "node1: nothing to resume; GPU 2 is not unhealthy"),
        ("nodes resume node1 --drain-only", [], "node1: nothing to resume; not drained"),
    ],
)
def test_a_resume_says_what_was_in_the_way_and_that_nothing_was_is_fine(
    said: Any, words: str, lifted: list[str], out: str
) -> None:
    code, said_out, _, asked = said(words, {"node": node(0), "lifted": lifted})
    assert (code, said_out) == (0, [out])
    wanted = {"gpu": 2 if "--gpu" in words else None, "drain_only": "--drain-only" in words}
    assert asked == [("/v1/nodes/node1/resume", wanted)]
