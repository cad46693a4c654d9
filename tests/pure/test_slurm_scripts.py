"""The scripts for a login node, in the shells and with the programs that one may have; Slurm itself is played."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentless.engines.slurm.engine import Slurm
from agentless.errors import InventoryError, NoAnswer
from agentless.inventory.inventory import load
from agentless.model.command import Command, Result
from agentless.model.containers.container import Container
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.model.terminal import Attachment, InputKind
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.pure.build import SIGNER, task
from tests.pure.shells import SHELLS

ENGINE = Slurm(NodeConfig("hpc", "login1"), SlurmCluster(), Renderer([template_dir()]), SIGNER)
SPEC = TaskSpec(("true",), secret_env=("TOKEN",))
SECRETS = {"TOKEN": "it's"}
PLAYED = {
    "sbatch": 'echo "sbatch $*" >> $AT/asked; echo 101',
    "scancel": 'echo "scancel $*" >> $AT/asked',
    "squeue": """
case "$*" in
  *"%j %F"*) cat $AT/names ;;
  *"%i|"*) mark=${*#*%i|}; sed "s/MARK/${mark%%|*}/" $AT/numbers ;;
  *"|%j|"*) [ ! -s $AT/noted ] || cat $AT/since; cat $AT/noted ;;
  *--Format*) mark=${*#*JobArrayID:|}; sed "s/MARK/${mark%%|*}/" $AT/jobs ;;
esac""",
    "scontrol": '[ "$1" != show ] || exec cat $AT/config; echo "scontrol $*" >> $AT/asked',
    "srun": '[ "$1" != --version ] || exit; echo "srun $2" >> $AT/asked',
    "sacct": 'mark=${*#*--delimiter=|}; sed "s/MARK/${mark%%|*}/g" $AT/past',
    # That of busybox has no -w.
    "flock": 'case $1 in -w) exit 1 ;; esac; exec /usr/bin/flock "$@"',
}
STATE = "RUNNING|None|0|1795759823|1795759824|NONE|c1"


@dataclass
class Login:
    """A login node: its folder of jobs, and what Slurm answers there."""

    shell: list[str]
    at: Path

    @property
    def folder(self) -> Path:
        return self.at / ".agentless" / "slurm"

    def run(self, command: Command) -> Result:
        programs = "/usr/bin:/bin" if self.shell[0] != "busybox" else str(self.at / "applets")
        env = {"HOME": str(self.at), "AT": str(self.at), "PATH": f"{self.at}/bin:{programs}", **command.secrets}
        ran = subprocess.run(
            [f"/usr/bin/{self.shell[0]}", *self.shell[1:], "-c", f"ulimit -v 262144\n{command.script}"],
            env=env,
            capture_output=True,
            check=False,
        )
        assert b"invalid option" not in ran.stderr
        assert b"unrecognized" not in ran.stderr
        return Result(ran.returncode, ran.stdout, ran.stderr)

    def launch(self, *tasks: Task) -> list[str]:
        command = ENGINE.launches([Launch(each, Placement("hpc"), secrets=SECRETS) for each in tasks])
        answers = ENGINE.answers(len(tasks), self.run(command))
        return [ENGINE.parse_launch(each, answer) for each, answer in zip(tasks, answers, strict=True)]

    def jobs(self, task: str) -> tuple[Container, ...]:
        return ENGINE.parse_containers(self.run(ENGINE.containers(task)), 0.0)

    def plays(self, **programs: str) -> None:
        for name, script in programs.items():
            self.at.joinpath("bin", name).write_text(f"#!/bin/sh\n{script}\n")
            self.at.joinpath("bin", name).chmod(0o755)

    def says(self, **answers: str) -> None:
        for name, answer in answers.items():
            self.at.joinpath(name).write_text(answer)

    def asked(self) -> list[str]:
        file = self.at / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture(params=SHELLS, ids=" ".join)
def login(request: pytest.FixtureRequest, tmp_path: Path) -> Login:
    for name in ("bin", "applets"):
        tmp_path.joinpath(name).mkdir()
    subprocess.run(["busybox", "--install", "-s", tmp_path / "applets"], check=True)
    login = Login(request.param, tmp_path)
    login.plays(**PLAYED)
    login.says(names="", jobs="", noted="", past="", numbers="", since="100|", config="")
    return login


def test_a_task_is_launched_seen_read_stopped_and_removed(login: Login) -> None:
    one, *array = (task(f"2task{each}", "hpc", batch="2task1" if each else "2task0", spec=SPEC) for each in range(4))
    assert login.launch(one) == ["101:agentless-2task0"]
    at = login.folder / "agentless-2task0"
    assert at.joinpath("secrets").read_text() == "export TOKEN='it'\\''s'\n"
    numbers = [f"101_{each}:agentless-2task{each}" for each in range(1, 4)]
    assert (login.launch(*array), login.launch(*array)) == (numbers, numbers)
    lines = login.asked()
    assert [("--array=1-3" in line, "2task0" in line) for line in lines] == [(False, True), (True, False)]
    comment = lines[0].partition("--comment=")[2].partition(" --output")[0]
    at.joinpath("ended").write_text(f"101 3 100 200 {comment}\n")
    for name in ("ended", "job"):
        login.folder.joinpath("agentless-2odd").mkdir(exist_ok=True)
        os.mkfifo(login.folder / "agentless-2odd" / name)
    waits = f"7_2|MARK|{STATE}|agentless_array-2task1|agentless|\n"
    login.says(jobs=waits, config="ClusterName             = lab\nSlurmctldHost[0]        = head1(10.0.0.1)\n")
    expected = {"101:agentless-2task0": ("exited", 3), "7_2:agentless-2task2": ("running", None)}
    facts = ENGINE.parse_facts({"slurm.jobs": login.run(Command(ENGINE.facts(accounting=True)[0].script))}, 0, 0)
    assert {each.id: (each.state, each.exit_code) for each in facts.containers or ()} == expected
    assert ([each.signed for each in facts.containers or ()], facts.keeps) == ([True, True], "lab at head1")
    assert sorted(facts.secrets) == ["2task0", "2task2"]  # the others are no longer listed with their array
    (look,) = login.jobs("2task2")
    assert look.id == "7_2:agentless-2task2"
    at.joinpath("out").write_text("one\ntwo\n")
    assert login.run(ENGINE.logs("101:agentless-2task0", LogQuery(tail=1))).out == "two\n"
    login.says(noted="PENDING|agentless-2task0|x\n")
    assert login.run(ENGINE.signal("101:agentless-2task0", "TERM")).ok
    assert (login.asked(), at.joinpath("secrets").exists()) == (["scancel 101"], False)
    assert login.run(ENGINE.remove_secrets(["2task2"])).ok
    assert not (login.folder / "agentless-2task2" / "secrets").exists()
    assert login.run(ENGINE.remove("101:agentless-2task0", force=True)).ok
    assert not at.exists()
    for command in (
        ENGINE.logs("101:agentless-2task0", LogQuery()),
        ENGINE.filtered_logs("101:agentless-2task0", ["wc"], []),
    ):
        assert login.run(command).err == "the folder of its job is gone, and its log with it\n"
    assert set(ENGINE.parse_scripts(login.run(ENGINE.scripts()))) == {"2task1", "2task2", "2task3"}


def test_a_name_with_line_breaks_is_no_line_of_another_job(login: Login) -> None:
    """Neither in the list of jobs nor in the accounting; the job that has it is listed all the same."""
    (one,) = login.launch(task("2task0", "hpc", spec=SPEC))
    comment = login.asked()[0].partition("--comment=")[2].partition(" --output")[0]
    ends = f"{STATE.replace('RUNNING', 'FAILED')}|agentless-2task0|{comment}|"
    forged = f"x\n101|{ends}\n101|0123456789abcdef|{ends}\nwhole"
    runs = f"101|MARK|{STATE}|agentless-2task0|{comment}|\n"
    past = runs.removesuffix("|\n").replace("MARK|", "").replace("|", "|MARK|")
    for answers in (
        {"jobs": f"{runs}102|MARK|{STATE}|{forged}||agentless|\n"},
        {"jobs": "", "past": f"{past}{forged}\n"},
    ):
        login.says(**answers)
        assert [(each.id, each.state) for each in login.jobs("2task0")] == [(one, "running")]


NOTED = {
    "RUNNING|agentless-2task0|agentless 2task0 c1 1:00": True,
    "RUNNING|renamed|agentless 2task0 c1 1:00": True,
    "RUNNING|agentless-2task0|changed": True,
    "RUNNING|mine|my own work": False,
    "RUNNING|agentless-2other|agentless 2other c1 1:00": False,
    "RUNNING|agentless_array-2task0|agentless": False,
    "": False,
}
"""What Slurm says of the job that a folder names, and whether it is that of its task."""


def test_a_number_that_was_changed_cancels_no_other_job(login: Login) -> None:
    launched = login.launch(task("2task0", "hpc", spec=SPEC))
    login.asked()
    shell = ENGINE.terminal.shell(*launched, ("true",), "mark", Attachment(InputKind.PIPE))
    for noted, is_its in NOTED.items():
        login.says(noted=noted)
        assert login.run(ENGINE.signal(*launched, "TERM")).ok == is_its
        assert login.asked() == ["scancel --signal=TERM 101"] * is_its
        for command in (ENGINE.pause(*launched), ENGINE.resume(*launched), shell):
            assert login.run(command).ok == is_its
        assert login.asked() == ["scontrol suspend 101", "scontrol resume 101", "srun --jobid=101"] * is_its
    for noted in ("RUNNING|mine|my own work", "RUNNING|agentless-2task0|x"):
        login.launch(task("2task0", "hpc", spec=SPEC))
        login.says(noted=noted)
        login.asked()
        assert login.run(ENGINE.remove("agentless-2task0", force=True)).ok
        by_name, *by_number = login.asked()
        assert by_name.endswith("--name=agentless-2task0")
        assert by_number == ["scancel 101"] * NOTED.get(noted, True)


def test_a_job_that_was_renamed_is_known_by_its_number_and_when_it_was_submitted(login: Login) -> None:
    """In a list of all jobs and of one, and for commands; not by a controller that has not seen its name."""
    one, *array = (task(f"2same{each}", "hpc", batch="2same1" if each else "2same0", spec=SPEC) for each in range(3))
    launched = [*login.launch(one), *login.launch(*array)]
    comment = login.asked()[0].partition("--comment=")[2].partition(" --output")[0]
    engine = Slurm(NodeConfig("hpc", "login1"), SlurmCluster(), Renderer([template_dir()]), SIGNER)
    named = {"101": f"agentless-2same0|{comment}", "101_1": "agentless_array-2same1|agentless", "101_2": "x|y"}

    def seen(**changed: str) -> dict[str, tuple[bool, bool]]:
        lines = [f"{number}|MARK|{STATE}|{name}|\n" for number, name in {**named, **changed}.items()]
        login.says(jobs="".join(lines))
        facts = engine.parse_facts({"slurm.jobs": login.run(Command(engine.facts()[0].script))}, 0, 0)
        for each in facts.containers or ():
            key = each.name.removeprefix("agentless-")
            (alone,) = engine.parse_containers(login.run(engine.containers(key)), 0.0)
            assert alone == each
        return {each.id: (each.signed, each.doubtful) for each in facts.containers or ()}

    both = dict.fromkeys(launched[:2], (True, False))
    assert seen() == {**both, launched[2]: (False, True)}
    assert seen(**{"101": "x|y", "101_1": "x|agentless"}) == {**both, launched[2]: (False, True)}
    login.says(noted="RUNNING|x|agentless")
    assert not login.run(engine.signal(launched[1], "TERM")).ok
    login.says(since="1795759823|")
    assert [login.run(engine.signal(each, "TERM")).ok for each in launched] == [True, True, False]
    login.says(since="1795759824|")
    assert not login.run(engine.signal(launched[0], "TERM")).ok
    engine = Slurm(NodeConfig("hpc", "login1"), SlurmCluster(), Renderer([template_dir()]), SIGNER)
    assert seen(**{"101": "x|y", "101_1": "x|agentless"}) == dict.fromkeys(launched, (False, True))


def test_a_number_of_another_element_of_an_array_is_not_that_of_a_task(login: Login) -> None:
    login.launch(*(task(f"2task{each}", "hpc", batch="2task1", spec=SPEC) for each in (1, 2)))
    login.says(noted="RUNNING|agentless_array-2task1|agentless")
    login.asked()
    for number, is_its in (("101_2", True), ("101_1", False), ("101", False)):
        assert login.run(ENGINE.signal(f"{number}:agentless-2task2", "TERM")).ok == is_its
        login.folder.joinpath("agentless-2task2", "job").write_text(f"{number}\n")
    assert login.asked() == ["scancel --signal=TERM 101_2"]
    assert login.run(ENGINE.remove("agentless-2task2", force=True)).ok
    assert [line for line in login.asked() if "--name" not in line] == []


def test_a_launch_that_is_repeated_does_not_believe_the_number_of_another_job(login: Login) -> None:
    """Nor does it submit a job, since its own may be the one that somebody has renamed."""
    one, *array = (task(f"2task{each}", "hpc", batch="2task1" if each else "2task0", spec=SPEC) for each in range(3))
    launched = [*login.launch(one), *login.launch(*array)]
    login.asked()
    own = ("agentless-2task0|x", "agentless_array-2task1|agentless", "mine|agentless 2task2 c 1:")
    for number, noted in zip(("101", "101_1", "101_2"), own, strict=True):
        login.says(numbers=f"{number}|MARK|{noted}\n")
        assert [*login.launch(one), *login.launch(*array)] == launched
        login.says(numbers=f"{number}|MARK|mine\n{number}|agentless-2task0|agentless 2task1 c 1:0\n")
        with pytest.raises(NoAnswer, match="another job of the number that is noted"):
            login.launch(*{"101": [one], "101_1": array, "101_2": array[::-1]}[number])
    login.folder.joinpath("agentless-2task2", "job").write_text("101_1")
    login.says(numbers="", names="agentless_array-2task1 101\n")
    assert login.launch(*array) == launched[1:]
    assert login.asked() == []


def test_a_task_that_slurm_lists_has_its_job_also_where_the_array_of_the_others_is_refused(login: Login) -> None:
    refuses = 'case "$*" in *--array*) echo "sbatch: error: Invalid job array specification" >&2; exit 1 ;; esac\n'
    only_tasks = 'case "$*" in *--name=agentless_array*) exit ;; esac'
    login.plays(sbatch=refuses + PLAYED["sbatch"], squeue=only_tasks + PLAYED["squeue"])
    login.says(names="agentless-2task3 77\n")
    launched = login.launch(*(task(f"2task{each}", "hpc", batch="2task1", spec=SPEC) for each in (1, 2, 3)))
    assert launched == ["101:agentless-2task1", "101:agentless-2task2", "77:agentless-2task3"]


def test_an_answer_without_an_end_fills_no_memory_and_says_nothing_of_any_job(login: Login) -> None:
    """Of a look, a launch and a stop; without a bound, the shell takes all memory that it can have."""
    first, later = task("2task0", "hpc", spec=SPEC), task("2task1", "hpc", spec=SPEC)
    login.launch(first)
    endless = "an answer of Slurm has more than 8 MB, or breaks off"
    login.plays(sbatch="exec yes")
    with pytest.raises(NoAnswer, match=endless):
        login.launch(later)
    login.plays(squeue="exec yes")
    facts = ENGINE.parse_facts({"slurm.jobs": login.run(Command("exec 2>&1\n" + ENGINE.facts()[0].script))}, 0, 0)
    assert (facts.containers, facts.error) == (None, endless)
    with pytest.raises(NoAnswer):
        login.launch(task("2task2", "hpc", spec=SPEC))
    stopped = login.run(ENGINE.signal("101:agentless-2task0", "KILL"))
    assert (stopped.ok, stopped.err.strip()) == (False, endless)


ODD = """a'b"$(id>x)`id>x`;*\\%j&|<"""


def test_a_partition_an_account_and_a_qos_reach_slurm_as_the_inventory_has_them(login: Login, tmp_path: Path) -> None:
    """One by one and as an array, for a doctor's job and for the list of nodes; several words are refused."""
    inventory = tmp_path / "inventory.yaml"

    def cluster(account: str) -> NodeConfig:
        keys = json.dumps({"engine": "slurm", "partition": f"p{ODD}", "account": account, "qos": f"q{ODD}"})
        inventory.write_text(f"version: 1\nnodes: {{}}\nclusters:\n  hpc: {keys}\n")
        return load(inventory).clusters["hpc"]

    config = cluster(ODD)
    engine = Slurm(config, config.slurm or SlurmCluster(), Renderer([template_dir()]), SIGNER)
    script = 'for word; do echo "<$word>"; done >> $AT/asked; echo 101'
    login.plays(sbatch=script, srun=script, sinfo=script)
    given = [f"<--partition=p{ODD}>", f"<--account={ODD}>", f"<--qos=q{ODD}>"]
    one, *two = (task(f"2task{each}", "hpc", batch="2task1" if each else "2task0") for each in range(3))
    for tasks in ([one], two):
        login.run(engine.launches([Launch(each, Placement("hpc")) for each in tasks]))
        assert [line for line in login.asked() if line in given] == given
    login.run(engine.trial("m", gpus=False))
    assert [line for line in login.asked() if line in given] == given
    login.run(engine.nodes())
    assert given[0] in login.asked()
    assert not [*login.at.rglob("x")]
    for several in ("a b", "a\nb", "a\tb", "-a", "", "a\x00b"):
        with pytest.raises(InventoryError, match=r"clusters\.hpc\.account"):
            cluster(several)
