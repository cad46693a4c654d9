"""Jobs as containers: which of them count, and what follows from an answer that is no whole one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agentless.controller.nodes.reconciler import _is_newer
from agentless.engines.slurm.engine import Slurm
from agentless.errors import NoAnswer, RuntimeFailed, TooMuch
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.model.containers.signature import Signer
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.sighting import Sighting
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.task import Placement, Submitted
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.pure.build import task

NODE = NodeConfig("hpc", "login1", slurm=SlurmCluster(partition="gpu"))
ENGINE = Slurm(NODE, SlurmCluster(partition="gpu"), Renderer([template_dir()]), Signer("c1", b"key"))
TASK = task("2abcdef", "hpc")
SCRIPT = ENGINE.launches([Launch(TASK, Placement("hpc"))]).script
COMMENT = re.search(r"agentless 2abcdef c1 1:[0-9a-f]{64}", SCRIPT)[0]


def job(number: str = "7", name: str = "agentless-2abcdef", comment: str = COMMENT, state: str = "RUNNING") -> str:
    return f"{number}|{state}|None|0|1795759823|1795759824|NONE|c1|cpu=1|{name}|{comment}|\n"


def found(text: str) -> list[tuple[str, bool, str]]:
    jobs = ENGINE.parse_containers(Result(0, text.encode()), 0.0)
    return [(each.id, each.signed, each.state) for each in jobs]


def test_a_job_is_known_by_its_signed_comment_whatever_its_name_is() -> None:
    assert found(job() + "ended:") == [("7:agentless-2abcdef", True, "running")]
    assert found(job(name="mine") + "ended:") == [("7:agentless-2abcdef", True, "running")]


def test_a_job_with_another_comment_is_known_by_its_name_but_not_as_ours() -> None:
    forged = COMMENT[:-4] + "0000"
    assert found(job(comment=forged) + "ended:") == [("7:agentless-2abcdef", False, "running")]
    assert found(job("8", name="agentless-2other") + "ended:") == [("8:agentless-2abcdef", True, "running")]
    assert found(job(name="theirs", comment="x") + "ended:") == []


def test_several_jobs_of_one_name_are_several() -> None:
    both = found(job() + job("8", comment="forged") + "ended:")
    assert both == [("7:agentless-2abcdef", True, "running"), ("8:agentless-2abcdef", False, "running")]


def test_a_job_that_slurm_has_forgotten_has_the_end_that_its_script_wrote() -> None:
    ended = f"agentless-2abcdef|7 3 1795759824 1795759830 {COMMENT}"
    (end,) = ENGINE.parse_containers(Result(0, f"ended:\n{ended}\n".encode()), 0.0)
    assert (end.id, end.exit_code, end.ran, end.signed) == ("7:agentless-2abcdef", 3, 6.0, True)
    (known,) = ENGINE.parse_containers(Result(0, f"{job()}ended:\n{ended}\n".encode()), 0.0)
    assert known.state == "running"


def test_an_answer_that_is_cut_off_says_nothing_of_the_jobs_that_it_lacks() -> None:
    with pytest.raises(TooMuch):
        found(job())
    with pytest.raises(TooMuch):
        found(job() * 20_001 + "ended:")
    cut = ENGINE.parse_facts({"slurm.jobs": Result(0, job().encode())}, 0.0, 0.0)
    assert (cut.containers, bool(cut.error)) == (None, True)


def test_a_secret_and_a_variable_are_in_no_argument_of_sbatch() -> None:
    secret = task("2abcdeg", "hpc", spec=TASK.spec.__class__(("true",), env={"A": "visible"}, secret_env=("B",)))
    command = ENGINE.launches([Launch(secret, Placement("hpc"), secrets={"B": "hidden"})])
    assert "hidden" not in command.script
    (options,) = re.findall(r"^launch .*?(--job-name=.*)", command.script, re.MULTILINE | re.DOTALL)
    assert "visible" not in options


def test_several_jobs_are_one_script_with_an_answer_for_each() -> None:
    tasks = [task(each, "hpc") for each in ("2abcdeh", "2abcdei", "2abcdej")]
    script = ENGINE.launches([Launch(each, Placement("hpc")) for each in tasks]).script
    assert all(f"answer {at} {each.container_name} " in script for at, each in enumerate(tasks, 1))
    good, bad, lost = ENGINE.answers(3, Result(0, b"1|job 7\n1=0\n2|sbatch: error: no such account\n2=1\n3|job"))
    assert ENGINE.parse_launch(tasks[0], good) == "7:agentless-2abcdeh"
    with pytest.raises(RuntimeFailed, match="no such account"):
        ENGINE.parse_launch(tasks[1], bad)
    with pytest.raises(NoAnswer):
        ENGINE.parse_launch(tasks[2], lost)


def test_a_look_that_began_before_a_job_was_submitted_does_not_miss_it() -> None:
    submitted = replace(TASK, status=Submitted(Placement("hpc"), "7:agentless-2abcdef", since=100.0))
    assert _is_newer(submitted, Sighting((), asked_at=99.0))
    assert not _is_newer(submitted, Sighting((), asked_at=101.0))
