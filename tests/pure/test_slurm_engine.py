"""Jobs as containers: which of them count, and what follows from an answer that is no whole one."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agentless.controller.nodes.reconciler import Reconciler, _is_newer
from agentless.controller.state.event_bus import ContainersSeen, EventBus, LaunchWanted
from agentless.engines import launch_script
from agentless.engines.slurm.engine import Slurm
from agentless.engines.slurm.jobs import parse_jobs
from agentless.engines.slurm.options import sbatch_options, srun_options
from agentless.errors import JobRefused, NoAnswer, RuntimeFailed, TooMuch, UsageError
from agentless.model.command import Result
from agentless.model.containers.claim import OWNER, claim_of, task_of
from agentless.model.containers.launch import Launch
from agentless.model.containers.signature import Signer
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.nodes.sighting import Sighting
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.gang import Gang, MultiNode
from agentless.model.tasks.spec import on_targets
from agentless.model.tasks.task import Assigning, Ended, Outcome, Placement, Running, Submitted, Task
from agentless.model.tasks.task_event import TaskEvent
from agentless.model.usage.run import gpus_held
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.submit.cluster import check_for_cluster, check_for_nodes, jobs_of
from agentless.rules.tasks.identity import is_adoptable
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.reconcile import reconcile
from agentless.rules.workflows.carried import HEAD, JOBS
from tests.pure.build import NOW, task

NODE = NodeConfig("hpc", "login1", slurm=SlurmCluster(partition="gpu"))
ENGINE = Slurm(NODE, SlurmCluster(partition="gpu"), Renderer([template_dir()]), Signer("c1", b"key"))
TASK = task("2abcdef", "hpc")
SCRIPT = ENGINE.launches([Launch(TASK, Placement("hpc"))]).script
COMMENT = re.search(r"agentless 2abcdef c1 1:[0-9a-f]{64}", SCRIPT)[0]


def job(number: str = "7", name: str = "agentless-2abcdef", comment: str = COMMENT, state: str = "RUNNING") -> str:
    return f"{number}|{state}|None|0|1795759823|1795759824|NONE|c1|{name}|{comment}|\n"


def found(text: str) -> list[tuple[str, bool, str]]:
    jobs = ENGINE.parse_containers(Result(0, text.encode()), 0.0)
    return [(each.id, each.signed, each.state) for each in jobs]


def test_a_job_is_known_by_its_signed_comment_whatever_its_name_is() -> None:
    assert found(job() + "ended:\nwhole") == [("7:agentless-2abcdef", True, "running")]
    assert found(job(name="mine") + "ended:\nwhole") == [("7:agentless-2abcdef", True, "running")]


def test_a_job_with_another_comment_is_known_by_its_name_but_not_as_ours() -> None:
    forged = COMMENT[:-4] + "0000"
    assert found(job(comment=forged) + "ended:\nwhole") == [("7:agentless-2abcdef", False, "running")]
    assert found(job("8", name="agentless-2other") + "ended:\nwhole") == [("8:agentless-2abcdef", True, "running")]
    assert found(job(name="theirs", comment="x") + "ended:\nwhole") == []


def test_several_jobs_of_one_name_are_several() -> None:
    both = found(job() + job("8", comment="forged") + "ended:\nwhole")
    assert both == [("7:agentless-2abcdef", True, "running"), ("8:agentless-2abcdef", False, "running")]


@pytest.mark.parametrize("state", ["TIMEOUT", "DEADLINE", "CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"])
def test_a_job_that_slurm_ended_has_not_succeeded_with_exit_code_0(state: str) -> None:
    line = job(state=state)
    (zero,) = ENGINE.parse_containers(Result(0, f"{line}ended:\nwhole\n".encode()), 0.0)
    (ended,) = ENGINE.parse_containers(Result(0, f"{line.replace('|0|', '|15|')}ended:\nwhole\n".encode()), 0.0)
    assert (zero.state, ended.exit_code) == ("exited", 143)
    assert zero.exit_code != 0
    assert zero.started_at is not None


@pytest.mark.parametrize("state", ["timeout", "killed"])
def test_how_slurm_ended_a_job_stays_when_it_has_forgotten_it(state: Outcome) -> None:
    line = f"ended:\nagentless-2abcdef|7 0 1795759824 1795759830 {COMMENT}\nwhole\n"
    (end,) = ENGINE.parse_containers(Result(0, line.encode()), 0.0)
    status = Ended(state, 1795759830.0, placement=Placement("hpc"), container=end.id)
    assert reconcile(replace(TASK, status=status), end, 1795760830.0) == ()


@pytest.mark.parametrize("days", [2, 250, 364.96])
def test_slurm_says_a_year_for_who_waits_for_a_job_without_a_time_limit_and_that_is_unknown(days: float) -> None:
    start = f"{1795759823 + days * 86400:.0f}"
    line = job(state="PENDING").replace("None|0|1795759823|1795759824", f"Resources|0|1795759823|{start}")
    (waits,) = ENGINE.parse_containers(Result(0, f"{line}ended:\nwhole\n".encode()), 0.0)
    if days < 30:
        assert (waits.expected_at, waits.error) == (float(start), "waits for free resources")
    else:
        assert waits.expected_at is None
        assert waits.error == "waits for free resources; no time limit ahead of it, so no estimate"
    later = line.replace("Resources", "BeginTime")
    (begins,) = ENGINE.parse_containers(Result(0, f"{later}ended:\nwhole\n".encode()), 0.0)
    assert begins.expected_at is not None


def test_a_held_job_has_no_expected_start_whatever_slurm_had_said_before() -> None:
    held = {"PENDING": "JobHeldAdmin", "REQUEUE_HOLD": "None", "REQUEUED": "launch failed requeued held"}
    for state, reason in held.items():
        line = job(state=state).replace("None|0|", f"{reason}|0|")
        (waits,) = ENGINE.parse_containers(Result(0, f"{line}ended:\nwhole\n".encode()), 0.0)
        assert (waits.state, waits.expected_at) == ("queued", None)


def test_a_job_that_slurm_has_forgotten_has_the_end_that_its_script_wrote() -> None:
    ended = f"agentless-2abcdef|7 3 1795759824 1795759830 {COMMENT}"
    (end,) = ENGINE.parse_containers(Result(0, f"ended:\n{ended}\nwhole\n".encode()), 0.0)
    assert (end.id, end.exit_code, end.ran, end.signed) == ("7:agentless-2abcdef", 3, 6.0, True)
    (odd,) = ENGINE.parse_containers(Result(0, f"ended:\n{ended.replace('|7 3', '|7 999')}\nwhole\n".encode()), 0.0)
    assert (odd.state, odd.exit_code) == ("exited", None)
    (known,) = ENGINE.parse_containers(Result(0, f"{job()}ended:\n{ended}\nwhole\n".encode()), 0.0)
    assert known.state == "running"


def test_the_compute_nodes_of_a_job_are_bounded_and_printable_and_unknown_where_only_its_script_knows_it() -> None:
    def nodes(text: str) -> str:
        (job,) = ENGINE.parse_containers(Result(0, text.encode()), 0.0)
        return job.compute_nodes

    assert nodes(job().replace("|c1|", "|c[1-2]|") + "ended:\nwhole") == "c[1-2]"
    assert nodes(job().replace("|c1|", "|c\x1b[31m|") + "ended:\nwhole") == "c�[31m"
    assert nodes(job().replace("|c1|", f"|{'c' * 999}|") + "ended:\nwhole") == "c" * 199 + "…"
    assert nodes(job(state="PENDING") + "ended:\nwhole") == ""
    assert nodes(f"ended:\nagentless-2abcdef|7 0 1795759824 1795759830 {COMMENT}\nwhole") == ""


def test_a_job_that_slurm_told_to_end_says_so_and_the_accounting_knows_better() -> None:
    ended = f"agentless-2abcdef|7 143 1795759824 1795759830 told {COMMENT}"
    (end,) = ENGINE.parse_containers(Result(0, f"ended:\n{ended}\nwhole\n".encode()), 0.0)
    assert (end.exit_code, end.outcome, end.signed) == (143, None, True)
    assert end.error == "its job was ended by Slurm: cancelled, preempted, or at its time limit"
    known = f"7|TIMEOUT|None|0:0|1795759823|1795759824|1795759830|c1|agentless-2abcdef|{COMMENT}"
    (end,) = ENGINE.parse_containers(Result(0, f"ended:\n{ended}\n{known}\nwhole\n".encode()), 0.0)
    assert (end.exit_code, end.outcome, end.signed) == (None, "timeout", True)


@pytest.mark.parametrize(
    ("state", "outcome", "code"),
    [
        ("NODE_FAIL", None, 255),
        ("PREEMPTED", "preempted", 143),
        ("OUT_OF_MEMORY", None, None),
        ("DEADLINE", "timeout", None),
    ],
)
def test_what_slurm_has_ended_is_never_completed_whatever_code_it_has(
    state: str, outcome: str | None, code: int | None
) -> None:
    """The accounting writes `0:0` for them."""
    (end,) = ENGINE.parse_containers(Result(0, f"{job(state=state)}ended:\nwhole".encode()), 0.0)
    assert (end.exit_code, end.outcome, end.oom_killed) == (code, outcome, state == "OUT_OF_MEMORY")


def test_a_step_that_was_killed_for_want_of_memory_is_told_by_the_script_of_its_job() -> None:
    failed = f"7|FAILED|NonZeroExitCode|{137 << 8}|1795759823|1795759824|1795759830|c1|agentless-2abcdef|{COMMENT}|"
    ended = f"agentless-2abcdef|7 137 1795759824 1795759830 oom {COMMENT}"
    for answer in (f"{failed}\nended:\n{ended}\nwhole\n", f"ended:\n{ended}\nwhole\n"):
        (end,) = ENGINE.parse_containers(Result(0, answer.encode()), 0.0)
        assert (end.exit_code, end.oom_killed) == (137, True)
    job = next(parse_jobs("7|OUT_OF_MEMORY|None|0:125|1|2|3|c1|x|c"))
    assert job.code == 137


def test_a_comment_that_pretends_to_be_the_end_of_an_answer_hides_no_job() -> None:
    forged = job("8", comment="x\n|agentlessended:\n|agentless") + job()
    assert found(forged + "ended:\nwhole") == [
        ("8:agentless-2abcdef", False, "running"), ("7:agentless-2abcdef", True, "running"),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", range(1, 90, 7))
def test_no_part_of_an_answer_is_taken_for_the_whole(cut: int) -> None:
    ended = f"agentless-2abcdef|7 3 1795759824 1795759830 {COMMENT}"
    text = f"{job('8')}ended:\n{ended}\nwhole\n"
    with pytest.raises(TooMuch):
        found(text[: len(text) * cut // 90])


def test_an_answer_that_is_cut_off_says_nothing_of_the_jobs_that_it_lacks() -> None:
    with pytest.raises(TooMuch):
        found(job())
    with pytest.raises(TooMuch):
        found(job() + "ended:\n")
    with pytest.raises(TooMuch):
        found(job() * 20_001 + "ended:\nwhole")
    cut = ENGINE.parse_facts({"slurm.jobs": Result(0, job().encode())}, 0.0, 0.0)
    assert (cut.containers, cut.error) == (None, "too many jobs of agentless in the answer of squeue; remove some")


def test_a_secret_and_a_variable_are_in_no_argument_of_sbatch() -> None:
    secret = task("2abcdeg", "hpc", spec=TASK.spec.__class__(("true",), env={"A": "visible"}, secret_env=("B",)))
    command = ENGINE.launches([Launch(secret, Placement("hpc"), secrets={"B": "hidden"})])
    assert "hidden" not in command.script
    (options,) = re.findall(r"^launch .*'(agentless 2abcdeg .*)", command.script, re.MULTILINE | re.DOTALL)
    assert "--partition=gpu" in options
    assert "visible" not in options


def test_the_script_of_a_job_carries_its_whole_task_for_who_has_lost_it() -> None:
    (line,) = re.findall(r"# (eN[A-Za-z0-9_=-]{100,})", SCRIPT)
    found = ENGINE.parse_scripts(Result(0, f"agentless-2abcdef {line}\n".encode()))
    (waiting,) = ENGINE.parse_containers(Result(0, f"{job(state='PENDING')}ended:\nwhole".encode()), 0.0)
    whole = ENGINE.with_labels(waiting, found["2abcdef"])
    taken = task_of(whole, "hpc", 2e9)
    assert (whole.signed, taken.id, taken.spec, taken.state, taken.container) == (
        True, "2abcdef", TASK.spec, "submitted", "7:agentless-2abcdef",
    )  # fmt: skip
    assert not ENGINE.with_labels(waiting, {**found["2abcdef"], OWNER: "eve"}).signed


def test_the_script_of_a_job_carries_its_workflow_beside_its_task() -> None:
    labels = {HEAD: "1:x:y", JOBS: "c$z`!<|"}
    script = ENGINE.launches([Launch(TASK, Placement("hpc"), labels=labels)]).script
    _, of_task, of_workflow, *_ = shlex.split(script[script.index("\nlaunch agentless-") :])[2].splitlines()
    assert ENGINE.parse_scripts(Result(0, f"agentless-2abcdef {of_task[2:]}".encode()))["2abcdef"][HEAD] == "1:x:y"
    found = ENGINE.parse_carried(Result(0, f"agentless-2abcdef {of_workflow[2:]}\n".encode()))
    assert found == {"agentless-2abcdef": labels[JOBS]}


def test_a_script_in_the_folder_of_another_task_or_of_nonsense_carries_nothing() -> None:
    (line,) = re.findall(r"# (eN[A-Za-z0-9_=-]{100,})", SCRIPT)
    bomb = launch_script.packed({"agentless.task": "2abcdef", "x": "0" * 10**7})
    said = [f"agentless-2other {line}", *(f"agentless-2abcdef {word}" for word in (line[:-9], bomb, "")), "\x1b[2J"]
    assert ENGINE.parse_scripts(Result(0, "\n".join(said).encode())) == {}


def test_a_job_is_never_taken_for_a_task_by_its_comment_alone() -> None:
    (running,) = ENGINE.parse_containers(Result(0, f"{job()}ended:\nwhole".encode()), 0.0)
    claim = claim_of(running)
    assert running.signed
    assert not is_adoptable(running, claim, "c1")


def test_several_jobs_are_one_script_with_an_answer_for_each() -> None:
    tasks = [task(each, "hpc") for each in ("2abcdeh", "2abcdei", "2abcdej")]
    script = ENGINE.launches([Launch(each, Placement("hpc")) for each in tasks]).script
    for at, each in enumerate(tasks, 1):
        assert f'words_{at}() {{ "$@" {each.container_name} ' in script
        assert f"words_{at} answer {at}\n" in script
    good, bad, lost = ENGINE.answers(3, Result(0, b"1|job 7\n1=0\n2|sbatch: error: no such account\n2=1\n3|job"))
    assert ENGINE.parse_launch(tasks[0], good) == "7:agentless-2abcdeh"
    with pytest.raises(RuntimeFailed, match="no such account"):
        ENGINE.parse_launch(tasks[1], bad)
    with pytest.raises(NoAnswer):
        ENGINE.parse_launch(tasks[2], lost)


@pytest.mark.parametrize(
    ("code", "said", "lasts"),
    [
        (1, "Invalid account or account/partition combination specified", True),
        (1, "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", False),
        (1, "a script of the site says no", False),
        (79, "unwritten", None),
    ],
)
def test_only_what_slurm_itself_refuses_is_refused_for_good(code: int, said: str, lasts: bool | None) -> None:
    answer = Result(code, said.encode(), said.encode())
    with pytest.raises(RuntimeFailed) as found:
        ENGINE.parse_launch(TASK, answer)
    assert (found.value.lasts if isinstance(found.value, JobRefused) else None) == lasts


def test_a_look_that_began_before_a_job_was_submitted_does_not_miss_it() -> None:
    submitted = replace(TASK, status=Submitted(Placement("hpc"), "7:agentless-2abcdef", since=100.0))
    assert _is_newer(submitted, Sighting((), asked_at=99.0))
    assert not _is_newer(submitted, Sighting((), asked_at=101.0))


@pytest.mark.parametrize(("now", "launches"), [("lab at b", 0), ("lab at a", 1)])
def test_a_launch_without_an_answer_is_not_repeated_on_another_slurm(now: str, launches: int) -> None:
    live: Any = {TASK.id: replace(TASK, status=Assigning(Placement("hpc"), NOW))}
    tasks = SimpleNamespace(live=live, launching=(), on_node=lambda _: [*live.values()])

    def changed(key: str, event: TaskEvent, cause: str) -> Task:
        del cause
        live[key] = apply(live[key], event, NOW)
        return live[key]

    wanted: list[LaunchWanted] = []
    nodes: Any = SimpleNamespace(clusters={"hpc": None})
    bus, ledger, clock = EventBus(), SimpleNamespace(tasks=tasks, apply=changed), SimpleNamespace(now=lambda: NOW)
    bus.subscribe(LaunchWanted, wanted.append)
    Reconciler(nodes, ledger, bus, clock)
    record = NodeRecord(keeps="lab at a").switched(now, NOW + 1) if now != "lab at a" else NodeRecord(keeps=now)
    for at in (NOW + 2, NOW + 3):
        bus.emit(ContainersSeen("hpc", Sighting((), at), None, record))
    assert len(wanted) == 2 * launches
    assert live[TASK.id].state == ("assigning" if launches else "lost")


def test_a_gang_on_a_cluster_is_one_task_and_one_job() -> None:
    gang = on_targets(replace(TASK.spec, needs=Needs(), gang=Gang(3, launcher="torchrun")), ["hpc 2xa100"])
    (whole,) = jobs_of(gang, {"hpc"})
    assert (whole.gang, whole.multinode, whole.gpus_of_job) == (None, MultiNode(3, "torchrun"), 6)
    assert jobs_of(gang, ()) == gang
    options, step = sbatch_options(whole, SlurmCluster()), srun_options(whole, SlurmCluster())
    assert {"--nodes=3", "--ntasks-per-node=1", "--gres=gpu:a100:2"} <= set(options)
    assert {"--ntasks=3", "--nodes=3", "--ntasks-per-node=1", "--kill-on-bad-exit=1"} <= set(step)
    script = ENGINE.launches([Launch(replace(TASK, spec=whole), Placement("hpc"))]).script
    assert "torchrun --no-python true" in script
    assert 'PET_NODE_RANK="$NODE_RANK"' in script
    boxed = Slurm(NODE, SlurmCluster(container="apptainer"), Renderer([template_dir()]), Signer("c1", b"key"))
    script = boxed.launches([Launch(replace(TASK, spec=replace(whole, image="torch")), Placement("hpc"))]).script
    assert "apptainer exec --nv docker://torch torchrun --no-python true" in script
    runs = replace(TASK, spec=whole, status=Running(Placement("hpc"), "7:agentless-2abcdef", NOW))
    assert gpus_held(runs) == 6


def test_what_only_nodes_or_only_a_cluster_can_run_is_refused() -> None:
    spec = replace(TASK.spec, image=None, needs=Needs(nodes=("hpc",)))
    with pytest.raises(UsageError, match="where --launcher mpirun cannot be used"):
        check_for_cluster(replace(spec, multinode=MultiNode(2, "mpirun")), "hpc", SlurmCluster())
    (first, *_) = on_targets(replace(TASK.spec, needs=Needs(), gang=Gang(2)), ["node1"])
    with pytest.raises(UsageError, match="each member needs its own node, but several targets are node1"):
        check_for_nodes(first)
    with pytest.raises(UsageError, match="only a cluster can run a job on several nodes"):
        check_for_nodes(replace(spec, multinode=MultiNode(2)))
