"""systemd: what is said to it, what its answers mean, and its scripts in real shells with stand-ins for programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.engines.systemd.journal import JournalReading
from agentless.errors import NoAnswer, NodeBroken, Refused, RuntimeFailed, UsageError
from agentless.gpus.owners import container_of
from agentless.model.command import Command, Result
from agentless.model.containers.claim import task_of
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.spec import SHELL_VARIABLES, Mount, check_spec
from agentless.model.tasks.task import Placement, Task
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import systemd_engine
from tests.pure.build import NOW, SIGNER, placement, spec, task, uuid

pytestmark = pytest.mark.usefixtures("own_gpus")

STANDINS = Path(__file__).parents[2] / "agentless" / "demo" / "bin"
SHELLS = [["dash"], ["bash"], ["busybox", "sh"]]
NODE = NodeConfig("node1", "h", user="ann")
SYSTEMD = systemd_engine(NODE, Renderer([template_dir()]), SIGNER)
NULL = {"container": "NULL", "image": None}
RAN = {"SubState": "exited", "ExecMainCode": "1", "ExecMainStatus": "0", "MainPID": "0"}


def assigning(name: str = "t1", target: str = "node1::0", **fields: object) -> Task:
    return task(name, target, "assigning", spec=spec(**NULL, **fields))


def setenv(of: Task, at: Placement) -> str:
    words = SYSTEMD.launches([Launch(of, at)]).script.split()
    return next(word.split("=", 1)[1] for word in words if word.startswith("--setenv="))


def block(**fields: str) -> str:
    given = {
        "Id": "agentless-t1.service",
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "FreezerState": "running",
        "MainPID": "55",
        "Result": "success",
        "ExecMainCode": "0",
        "ExecMainStatus": "0",
        "ExecMainStartTimestamp": "Sun 2026-11-22 18:56:17.781853 UTC",
        "ExecMainExitTimestamp": "",
        "Environment": "",
    }
    return "".join(f"{key}={value}\n" for key, value in {**given, **fields}.items()) + "\n"


def units(*blocks: str):
    return SYSTEMD.parse_containers(Result(0, "".join(blocks).encode()), 0.0)


# ------------------------------------------------------------------ what it says


@pytest.mark.parametrize(
    ("fields", "state", "code"),
    [
        ({}, "running", None),
        ({"ActiveState": "activating", "SubState": "start"}, "running", None),
        ({"SubState": "stop-sigterm", "MainPID": "0"}, "running", None),
        ({"FreezerState": "frozen"}, "paused", None),
        ({"State": "T"}, "paused", None),
        (RAN, "exited", 0),
        ({**RAN, "SubState": "failed", "ExecMainStatus": "7"}, "exited", 7),
        ({**RAN, "SubState": "failed", "ExecMainCode": "2", "ExecMainStatus": "9"}, "exited", 137),
        ({**RAN, "ExecMainCode": "", "ExecMainStatus": "?"}, "exited", None),
    ],
)
def test_the_state_of_a_unit_is_that_of_its_task(fields, state, code):
    (unit,) = units(block(**fields))
    assert (unit.id, unit.name, unit.state, unit.exit_code) == ("agentless-t1.service", "agentless-t1", state, code)


def test_how_long_it_ran_and_that_memory_ran_out_are_systemds_word():
    ended = {**RAN, "Result": "oom-kill", "ExecMainExitTimestamp": "Sun 2026-11-22 18:56:19.281853 UTC"}
    (unit,) = units(block(**ended))
    assert (unit.oom_killed, unit.ran) == (True, pytest.approx(1.5))


def test_what_is_no_unit_of_ours_or_is_not_there_is_left_out():
    others = [{"Id": "ssh.service"}, {"LoadState": "not-found", "ActiveState": "inactive"}, {"ActiveState": "inactive"}]
    assert units(*(block(**fields) for fields in others), "garbage\n\n") == ()


def test_units_that_could_not_be_asked_for_are_not_none():
    asked = SYSTEMD.facts()[0].name
    assert SYSTEMD.parse_facts({asked: Result(1, b"Failed to connect to bus")}, 0.0, 0.0).containers is None
    assert SYSTEMD.parse_facts({}, 0.0, 0.0).containers is None
    assert SYSTEMD.parse_facts({asked: Result(0)}, 0.0, 0.0).containers == ()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9), min_size=1))
def test_a_task_comes_back_from_its_unit_whatever_its_words_are(words):
    of = task("t1", "node1::0", "assigning", spec=spec(*words, **NULL, env={"A": words[0]}))
    packed = setenv(of, placement())
    (unit,) = units(block(Environment=packed))
    found = task_of(unit, "node1", NOW)
    assert (found.id, found.spec, found.owner, found.placement.gpu_uuids) == (
        "t1", of.spec, of.owner, placement().gpu_uuids,
    )  # fmt: skip


@pytest.mark.parametrize("damaged", ["", "AGENTLESS_LABELS=x", "AGENTLESS_LABELS=eJw=", "AGENTLESS_LABELS=!"])
def test_damaged_labels_are_none(damaged):
    assert units(block(Environment=damaged))[0].labels == {}


def test_a_process_in_a_unit_of_ours_is_in_its_container():
    assert container_of("0::/system.slice/agentless-t1-2.service") == "agentless-t1-2.service"
    within = f"1:name=systemd:/docker/{'0' * 64}/system.slice/agentless-t1.service"
    assert container_of(within) == "agentless-t1.service"
    assert container_of("0::/system.slice/agentless-t1.service.d") is None
    assert container_of("0::/user.slice/other.service") is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("without|init", "no systemd on node1 (its first process is init)"),
        ("linger|ann", "sudo loginctl enable-linger ann"),
        ("user|ann", "cannot run tasks as another user; omit --user"),
        ("limit|cpu", "omit --cores"),
        ("limit|memory", "omit --memory"),
        ("status|200", "node1 has no folder /data, or the user cannot enter it"),
        ("status|217", "node1 has no user bob"),
        ("status|245", "could not start the task (status 245)"),
    ],
)
def test_what_systemd_cannot_do_is_a_sentence_with_the_fix(said, words):
    with pytest.raises(RuntimeFailed) as caught:
        SYSTEMD.parse_launch(assigning(workdir="/data", user="bob"), Result(79, said.encode()))
    assert words in str(caught.value)


@pytest.mark.parametrize("code", [78, 130, 255])
def test_a_launch_that_broke_off_is_unknown(code):
    with pytest.raises(NoAnswer):
        SYSTEMD.parse_launch(assigning(), Result(code))


@pytest.mark.parametrize(
    ("code", "said", "fault"),
    [
        (1, "Failed to start transient service unit: Connection timed out", "start"),
        (1, "Failed to connect to bus: No such file or directory", "start"),
        (77, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "engine"),
    ],
)
def test_a_failure_for_a_reason_of_the_node_is_told_from_those_of_the_task(code: int, said: str, fault: str) -> None:
    with pytest.raises(NodeBroken, match="node1") as caught:
        SYSTEMD.parse_launch(assigning(), Result(code, b"", said.encode()))
    assert caught.value.fault == fault


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("live agentless-t1.service", ("live", "t1")),
        ("over agentless-t1-2.service", ("over", "t1-2")),
        ("start t1", None),
        ("live other.service", None),
    ],
)
def test_the_watch_tells_units_from_containers(line, said):
    assert SYSTEMD.parse_watched(line) == said


# ------------------------------------------------------------------ its journal


def entry(message: object, priority: str = "6", at: int = 1_777_634_400_123_456) -> bytes:
    return json.dumps({"MESSAGE": message, "PRIORITY": priority, "__REALTIME_TIMESTAMP": str(at)}).encode() + b"\n"


@given(st.integers(1, 40))
def test_a_log_comes_apart_on_its_streams_in_whatever_pieces_it_arrives(size):
    printed = entry("one") + b"-- No entries --\n" + entry("two", "3") + entry([255, 10], "3") + b"-- cursor: s=1\n"
    reading = JournalReading(timestamps=False)
    found = [frame for at in range(0, len(printed), size) for frame in reading(1, printed[at : at + size])]
    assert b"".join(data for fd, data in found if fd == 1) == b"one\n"
    assert b"".join(data for fd, data in found if fd == 2) == b"two\n\xff\n\n"


def test_times_are_written_as_docker_writes_them_and_what_journalctl_says_itself_is_no_output():
    reading = SYSTEMD.reading(LogQuery(timestamps=True))
    assert list(reading(1, entry("x"))) == [(1, b"2026-05-01T11:20:00.123456000Z x\n")]
    assert list(reading(2, b"Hint: you are not allowed to\n")) == []


# ------------------------------------------------------------------ what may be asked for


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "busybox"}, "--image needs a container"),
        ({"mounts": (Mount("/a", "/b"),)}, "--mount needs a container"),
        ({"network": "host"}, "--network needs a container"),
        ({"privileged": True}, "--privileged needs a container"),
        ({"shm_size": 1 << 30}, "--shm-size needs a container"),
        ({"workdir": "here"}, "--workdir 'here': with --container NULL, use an absolute path on the node"),
    ],
)
def test_what_only_a_container_can_have_is_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        check_spec(spec(**{**NULL, **fields}))


# ------------------------------------------------------------------ in real shells


class Node:
    """A node with stand-ins: `ran` are the words of each `systemd-run`, `program` what its unit reads."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder, self.shell, self.live = folder, shell, folder / "live"
        self.live.write_text("")
        (folder / "bin").mkdir()
        (folder / "booted").mkdir()
        self.put("docker", f"cat {self.live}")
        self.put("systemctl", 'case "$*" in *LoadState,*) echo LoadState=not-found;; *) echo not-found;; esac')
        self.put(
            "systemd-run",
            f"""printf '%s\\n' "$@" >>{folder}/ran
            for word; do
              case $word in --property=StandardInput=file:*) cat "${{word#*file:}}" >{folder}/program ;; esac
            done
            exit "${{RUN_EXITS:-0}}\"""",
        )
        self.put("systemd-cat", 'while [ "$1" != -- ]; do [ "$1" != true ] || exit 0; shift; done; shift; exec "$@"')

    def put(self, name: str, body: str) -> None:
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def run(self, script: str, *words: str, **env: str) -> Result:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [*self.shell, *words],
            input=script.replace("/run/systemd/system", f"{self.folder}/booted").encode(),
            env={"PATH": path, **env},
            capture_output=True,
            check=False,
            timeout=60,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def launch(self, of: Task, secrets: dict[str, str] | None = None, **env: str) -> str:
        command: Command = SYSTEMD.launches([Launch(of, placement(str(of.spec.needs)), secrets=secrets or {})])
        return SYSTEMD.parse_launch(of, self.run(command.text(), **env))

    @property
    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def program(self) -> str:
        return (self.folder / "program").read_text()


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    shell = getattr(request, "param", ["sh"])
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]} here")
    return Node(tmp_path, shell)


in_each_shell = pytest.mark.parametrize("node", SHELLS, indirect=True, ids=" ".join)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user is asked for sudo, and for lingering")


@as_root
@in_each_shell
def test_a_launch_starts_the_unit_and_says_its_name(node: Node) -> None:
    assert node.launch(assigning(cores=0.5, memory=1 << 20)) == "agentless-t1.service"
    for word in ("--system", "--unit=agentless-t1.service", "--service-type=exec", "--remain-after-exit"):
        assert word in node.ran
    for word in ("CPUQuota=50.00%", f"MemoryMax={1 << 20}", "MemorySwapMax=0", "KillMode=control-group"):
        assert f"--property={word}" in node.ran
    assert node.ran[-1] == f"agentless-claim=agentless-t1.service|agentless-t1|Up|{uuid('node1', 0)}||||t1|me@here"


@as_root
@in_each_shell
def test_the_program_gets_every_value_as_it_was_and_a_secret_is_in_no_argument(node: Node) -> None:
    secret, plain = 'it\'s $(a) `b`\n\\ "x" é\n', "p 'q' $HOME\n%s"
    words = (
        "sh",
        "-c",
        'printf "%s|%s|%s|%s" "$live" "$PLAIN" "$CUDA_VISIBLE_DEVICES" "$1"; exit 7',
        "x",
        "a  'b'\n$",
    )
    of = task("t1", "node1::0", "assigning", spec=spec(*words, **NULL, env={"PLAIN": plain}, secret_env=("live",)))
    node.launch(of, {"live": secret})
    assert not any("it's" in word for word in node.ran)
    done = node.run(node.program, "-c", 'eval "`cat`"')
    assert (done.exit_code, done.out) == (7, f"{secret}|{plain}|{uuid('node1', 0)}|a  'b'\n$")


@as_root
@in_each_shell
def test_variables_that_mean_something_to_a_shell_reach_the_command_and_break_nothing(node: Node) -> None:
    env = dict.fromkeys(SHELL_VARIABLES - {"_"}, "a:b c")
    look = f"import json, os; print(json.dumps({{name: os.environ[name] for name in {sorted(env)}}}))"
    node.launch(task("t1", "node1::0", "assigning", spec=spec(sys.executable, "-c", look, **NULL, env=env)))
    done = node.run(node.program, "-c", 'eval "`cat`"')
    assert (done.exit_code, json.loads(done.out)) == (0, env), done


@as_root
def test_a_program_with_an_equals_sign_in_its_path_is_none_of_those_variables(node: Node) -> None:
    program = node.folder / "lr=0.1"
    program.write_text("#!/bin/sh\necho ran $PS4\n")
    program.chmod(0o755)
    node.launch(task("t1", "node1::0", "assigning", spec=spec(str(program), **NULL, env={"PS4": "+"})))
    assert node.run(node.program, "-c", 'eval "`cat`"').out == "ran +\n"


CUDA = "echo $CUDA_HOME; echo $PATH; echo $LD_LIBRARY_PATH"


def cuda(node: Node, config: NodeConfig = NODE, *folders: str, **env: str) -> list[str]:
    """What a task has of CUDA on a node with these folders in /usr/local."""
    local = node.folder / "local"
    for folder in folders:
        (local / folder / "lib64").mkdir(parents=True)
    of = task("t1", "node1::0", "assigning", spec=spec("/bin/sh", "-c", CUDA, **NULL, env=env))
    engine = systemd_engine(config, Renderer([template_dir()]), SIGNER)
    node.run(engine.launches([Launch(of, placement("node1::0"))]).text())
    program = node.program.replace("/usr/local", str(local))
    found = node.run(program, "-c", 'eval "`cat`"').out.replace(str(local), "/usr/local")
    return found.replace(f":{node.folder}/bin:{os.environ['PATH']}", ":…").splitlines()


def those_of(folder: str) -> list[str]:
    return [folder, f"{folder}/bin:…", f"{folder}/lib64"]


@as_root
@in_each_shell
def test_a_task_has_the_nodes_cuda_or_the_highest_version_of_several(node: Node) -> None:
    assert cuda(node)[0] == cuda(node)[2] == ""
    assert cuda(node, NODE, "cuda-9.2", "cuda-12.4", "cuda-12.10", "cuda-11") == those_of("/usr/local/cuda-12.10")
    (node.folder / "local" / "cuda-13").mkdir()  # without libraries it is not installed
    assert cuda(node) == those_of("/usr/local/cuda-12.10")
    assert cuda(node, NODE, "cuda") == those_of("/usr/local/cuda")


@as_root
def test_the_cuda_of_the_inventory_and_then_the_users_own_variables_win(node: Node) -> None:
    own = node.folder / "own cuda"
    own.mkdir()
    config = replace(NODE, cuda=str(own))
    assert cuda(node, config, "cuda") == those_of(str(own))
    assert cuda(node, config, CUDA_HOME="/mine") == those_of("/mine")
    assert cuda(node, config, LD_LIBRARY_PATH="/l", PATH="/p") == [str(own), "/p", "/l"]


@as_root
@in_each_shell
def test_a_node_without_the_cuda_of_the_inventory_says_so_before_anything_runs(node: Node) -> None:
    config = replace(NODE, cuda="/no/such cuda")
    engine = systemd_engine(config, Renderer([template_dir()]), SIGNER)
    of = assigning()
    answer = node.run(engine.launches([Launch(of, placement("node1::0"))]).text())
    with pytest.raises(RuntimeFailed, match=r"^node1 has no folder /no/such cuda; correct cuda: in the inventory"):
        engine.parse_launch(of, answer)
    assert node.ran == []


@as_root
@in_each_shell
def test_the_command_does_not_ignore_what_a_background_job_does(node: Node) -> None:
    of = assigning()
    of = task("t1", "node1::0", "assigning", spec=spec("sh", "-c", "kill -INT $$; echo alive", **NULL))
    node.launch(of)
    assert node.run(node.program, "-c", 'eval "`cat`"').exit_code == 130


@as_root
@in_each_shell
@pytest.mark.parametrize("holder", ["container", "process"])
def test_a_gpu_that_is_held_by_whatever_is_refused_and_nothing_is_run(node: Node, holder: str) -> None:
    claim = f"x|agentless-t9|Up|{uuid('node1', 6)}||||t9|bob@there"
    process = None
    if holder == "container":
        node.live.write_text(f"|{claim}\n")
    else:
        process = subprocess.Popen(["/bin/sh", "-c", "read x", f"agentless-claim={claim}"], stdin=subprocess.PIPE)
    try:
        with pytest.raises(Refused, match="GPU 6 is held by task t9 of bob@there"):
            node.launch(assigning(target="node1::6"))
    finally:
        if process:
            process.communicate()
    assert node.ran == []
    node.live.write_text("")
    assert node.launch(assigning())


@in_each_shell
@pytest.mark.parametrize("simulated", [False, True])
def test_a_node_without_systemd_says_what_it_has(node: Node, *, simulated: bool) -> None:
    if simulated:
        shutil.copy(STANDINS / "systemctl", node.folder / "bin")
    else:
        (node.folder / "booted").rmdir()
    with pytest.raises(RuntimeFailed, match="no systemd on"):
        node.launch(assigning())
    assert node.ran == []


@as_root
def test_a_unit_that_is_there_is_not_started_again(node: Node) -> None:
    node.put("systemctl", "echo loaded")
    assert node.launch(assigning()) == "agentless-t1.service"
    assert node.ran == []


@as_root
@pytest.mark.parametrize(
    ("state", "raised"),
    [
        ("LoadState=not-found", RuntimeFailed),
        ("LoadState=loaded ActiveState=failed ExecMainStatus=200", RuntimeFailed),
        ("LoadState=loaded ActiveState=failed ExecMainStatus=3", NoAnswer),
        ("LoadState=loaded ActiveState=active ExecMainStatus=0", NoAnswer),
    ],
)
def test_a_run_that_fails_is_a_failure_only_when_nothing_can_have_run(
    node: Node, state: str, raised: type[Exception]
) -> None:
    node.put("systemctl", f'case "$*" in *LoadState,*) printf "%s\\n" {state};; *) echo not-found;; esac')
    with pytest.raises(raised):
        node.launch(assigning(), RUN_EXITS="1")


def test_a_task_is_not_started_without_the_value_of_its_secret() -> None:
    with pytest.raises(RuntimeFailed, match="the value of secret TOKEN has been deleted"):
        SYSTEMD.launches([Launch(assigning(secret_env=("TOKEN",)), placement())])


def test_an_owner_cannot_write_another_claim() -> None:
    of = task("t1", "node1::0", "assigning", owner="a|b\nagentless-claim=$x %i", spec=spec(**NULL))
    script = SYSTEMD.launches([Launch(of, placement())]).script
    assert "||||t1|a_b_agentless-claim_" in script


@pytest.mark.parametrize("status", ["256", "9" * 30, "9" * 5000, "²"])
def test_an_exit_code_or_a_time_that_there_cannot_be_is_not_known(status: str) -> None:
    """A larger number could neither be kept nor shown."""
    lines = {
        "Id": "agentless-t1.service", "LoadState": "loaded", "ActiveState": "active", "SubState": "exited",
        "ExecMainCode": "1", "ExecMainStatus": status, "ExecMainStartTimestamp": "Mon 2026-99-99 10:00:00 UTC",
    }  # fmt: skip
    said = "".join(f"{key}={value}\n" for key, value in lines.items())
    runtime = systemd_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)
    (unit,) = runtime.parse_containers(Result(0, said.encode(), b""), 0.0)
    assert (unit.exit_code, unit.started_at) == (None, None)
