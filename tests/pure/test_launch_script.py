"""The launch script, run by real shells with a stand-in for docker: lock, check, run."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.engines import launch_script
from agentless.errors import AgentlessError, ImageMissing, NoAnswer, NodeBroken, NodeUnfit, Refused, RuntimeFailed
from agentless.model.command import Command, Result
from agentless.model.containers.launch import Launch
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.task import Placement, Task
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.proc import process_files
from tests.pure.build import SIGNER, placement, spec, task, uuid
from tests.pure.shells import SHELLS

pytestmark = pytest.mark.usefixtures("own_gpus")

FAKE = Path(__file__).parent / "data" / "docker" / "fake_docker.py"


class Node:
    """A node with a stand-in for docker; `engine` speaks to it."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.state, self.bin, self.shell = folder / "state", folder / "bin", shell
        self.state.mkdir()
        self.bin.mkdir()
        self.program("docker", f'exec {sys.executable} -SE {FAKE} "$@"')
        self.engine = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)

    def program(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def start(
        self, of: Task, secrets: dict[str, str] | None = None, at: Placement | None = None, **env: str
    ) -> subprocess.Popen[bytes]:
        return self.begin(
            self.engine.launches([Launch(of, at or placement(str(of.spec.needs)), secrets=secrets or {})]), **env
        )

    def begin(self, command: Command, **env: str) -> subprocess.Popen[bytes]:
        path = f"{self.bin}:{os.environ['PATH']}"
        running = subprocess.Popen(
            self.shell,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": path, "FAKE_DOCKER": str(self.state), "LANG": "C.UTF-8", **env},
            start_new_session=True,
        )
        assert running.stdin is not None
        running.stdin.write(command.text().encode())
        running.stdin.close()
        running.stdin = None
        return running

    def launch(self, of: Task, secrets: dict[str, str] | None = None, **env: str) -> str:
        return self.engine.parse_launch(of, self.result(self.start(of, secrets, **env)))

    def result(self, running: subprocess.Popen[bytes]) -> Result:
        out, err = running.communicate(timeout=60)
        return Result(running.returncode, out, err)

    def containers(self) -> dict[str, Any]:
        return {path.stem: ast.literal_eval(path.read_text()) for path in self.state.glob("*.container")}

    def put(self, name: str, container: dict[str, Any]) -> None:
        """Have this container, in the place of the one that was called so."""
        (self.state / f"{name}.container").write_text(ascii(container))

    def started(self) -> list[str]:
        file = self.state / "started"
        return file.read_text().split() if file.exists() else []

    def runs(self) -> list[list[str]]:
        file = self.state / "runs"
        return [run.split("\0") for run in file.read_text().split("\n\0\n")[:-1]] if file.exists() else []


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    shell = getattr(request, "param", ["sh"])
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]} here")
    return Node(tmp_path, shell)


in_each_shell = pytest.mark.parametrize("node", SHELLS, indirect=True, ids=" ".join)


def assigning(name: str = "t1", target: str = "node1::0", **fields: Any) -> Task:
    return task(name, target, "assigning", **fields)


@in_each_shell
def test_a_launch_runs_the_container_and_says_its_id(node: Node) -> None:
    found = node.launch(assigning())
    container = node.containers()["agentless-t1"]
    assert (container["id"], container["state"], container["command"]) == (found, "running", ["true"])


@pytest.mark.parametrize("node", [["bash"]], indirect=True, ids=" ".join)
def test_a_shell_that_has_no_room_on_a_disk_sees_who_holds_what_all_the_same(node: Node) -> None:
    """Bash would put a long list into a file, older ones any list."""
    node.launch(assigning("t1", owner="a" * 100_000))
    (node.state / "runs").unlink()
    node.shell = ["bash", "-c", "trap '' XFSZ; ulimit -f 64; exec bash"]
    with pytest.raises(Refused, match="GPU 0 is held by task t1"):
        node.launch(assigning("t2"))
    assert node.runs() == []


@in_each_shell
def test_a_gpu_that_is_held_is_refused_with_its_holder_and_nothing_is_run(node: Node) -> None:
    node.launch(assigning("t1", "node1::0,1", owner="ann@there"))
    with pytest.raises(Refused) as caught:
        node.launch(assigning("t2", "node1::2,1,0"))
    assert str(caught.value) == (
        "node1::2,1,0: GPU 1 is held by task t1 of ann@there; GPU 0 is held by task t1 of ann@there"
    )
    assert list(node.containers()) == ["agentless-t1"]
    assert len(node.runs()) == 1


@pytest.mark.parametrize("state", ["created", "running", "paused", "restarting"])
def test_every_live_container_holds_its_gpus(node: Node, state: str) -> None:
    node.launch(assigning("t1"))
    container = node.containers()["agentless-t1"]
    node.put("agentless-t1", container | {"state": state})
    with pytest.raises(Refused, match="GPU 0 is held by task t1"):
        node.launch(assigning("t2"))


def test_a_container_that_has_ended_holds_nothing(node: Node) -> None:
    node.launch(assigning("t1"))
    container = node.containers()["agentless-t1"]
    node.put("agentless-t1", container | {"state": "exited"})
    assert node.launch(assigning("t2"))


def test_other_gpus_and_tasks_without_gpu_do_not_get_in_each_others_way(node: Node) -> None:
    node.launch(assigning("t1", "node1::0"))
    node.launch(assigning("t2", "node1::1"))
    node.launch(assigning("t3", "node1"))
    node.launch(assigning("t4", "node1"))
    assert len(node.containers()) == 4


@pytest.mark.parametrize(("first", "second"), [("node1::1", "node1::11"), ("node1::11", "node1::1")])
def test_a_gpu_whose_name_begins_like_another_is_another(node: Node, first: str, second: str) -> None:
    node.launch(assigning("t1", first))
    assert node.launch(assigning("t2", second))


@pytest.mark.parametrize("owner", ["a|b", "||||", "a\\c", "-n", "*", "LIVE", "two\nlines", ""])
def test_an_odd_owner_cannot_hide_a_claim(node: Node, owner: str) -> None:
    node.launch(assigning("t1", owner=owner))
    with pytest.raises(Refused, match="GPU 0 is held by task t1 of"):
        node.launch(assigning("t2"))


@pytest.mark.parametrize("option", ["--detach", "-d", "--detach=true"])
def test_an_own_template_that_would_run_the_container_creates_it(node: Node, tmp_path: Path, option: str) -> None:
    """Run, a task would be started under the lock, and once more if it ends before the script starts it."""
    text = (template_dir() / "docker" / "launch" / "docker-run.j2").read_text()
    (tmp_path / "docker-run.j2").write_text(text.replace(" create ", f" run {option} "))
    node.engine = docker_engine(NodeConfig("node1", "h"), Renderer([tmp_path, template_dir()]), SIGNER)
    node.launch(assigning(spec=spec("run", option)))
    assert node.containers()["agentless-t1"]["command"] == ["run", option]
    assert node.started() == ["agentless-t1"]


@in_each_shell
def test_a_second_launch_of_the_same_task_finds_its_container_and_runs_nothing(node: Node) -> None:
    first = node.launch(assigning())
    assert node.launch(assigning()) == first
    assert len(node.runs()) == 1


STRANGERS = {
    "its label": ("evil", {"agentless.task": "t1"}),
    "its label, created": ("evil", {"agentless.task": "t1"}),
    "all labels of another launch": ("evil", {"agentless.task": "t1", "agentless.signature": "1:" + "0" * 64}),
    "a line in a label": ("evil", {"agentless.task": "t2", "agentless.owner": f"x\n{'f' * 64}|agentless-t1|Up|||||t1"}),
}


@in_each_shell
@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_container_that_this_launch_has_not_signed_is_not_its_own(node: Node, stranger: str) -> None:
    """Whoever may use Docker there knows what the next try of a task will be called."""
    name, labels = STRANGERS[stranger]
    state = "created" if "created" in stranger else "running"
    evil = {"id": "e" * 64, "name": name, "state": state, "labels": labels, "env": {}}
    node.put("evil", evil)
    assert node.launch(assigning("t1")) == node.containers()["agentless-t1"]["id"]
    assert node.containers()["evil"] == evil


def test_a_container_of_somebody_else_with_our_name_is_neither_taken_nor_removed(node: Node) -> None:
    evil = {"id": "e" * 64, "name": "agentless-t1", "state": "created", "labels": {"agentless.task": "t1"}, "env": {}}
    node.put("agentless-t1", evil)
    with pytest.raises(
        NodeUnfit, match="container agentless-t1 on node1 has the name of a task but agentless did not create it"
    ):
        node.launch(assigning("t1"))
    assert node.containers() == {"agentless-t1": evil}


def test_a_copy_of_our_labels_is_not_taken_for_the_container_that_has_our_name(node: Node) -> None:
    first = node.launch(assigning())
    copy = node.containers()["agentless-t1"] | {"id": "e" * 64, "name": "a-copy"}
    node.put("a-copy", copy)
    assert node.launch(assigning()) == first


@contextlib.contextmanager
def process(name: str, *words: str) -> Iterator[None]:
    """A process of this name with these arguments, as any user of a node may have."""
    code = f"open('/proc/self/comm', 'w').write({name!r}); print(flush=True); input()"
    script = ["-c", code] if name == "sh" else ["/dev/stdin"]
    running = subprocess.Popen([sys.executable, *script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    if name != "sh":
        running.stdin.write(code.replace("input()", "import time; time.sleep(60)").encode())
        running.stdin.close()
    running.stdout.readline()
    try:
        yield
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def test_a_process_that_says_it_is_the_task_is_not_taken_for_it(node: Node) -> None:
    with process("sh", f"agentless-claim={'d' * 64}|agentless-t1z9|Up|||||t1z9|eve"):
        assert node.launch(assigning("t1z9")) == node.containers()["agentless-t1z9"]["id"]


@in_each_shell
def test_a_process_cannot_take_the_claim_of_another_away(node: Node) -> None:
    at, victim = placement("node1::7"), "a1" * 32  # a GPU that no other test has: all see these processes
    with (
        process("conmon", "-c", victim, "-n", f"agentless-t9.ann....{at.gpu_uuids[0]}"),
        process("sh", f"agentless-claim={victim}|x|Up|||||t8|eve"),
        pytest.raises(Refused, match="GPU 7 is held by task t9 of ann"),
    ):
        node.launch(assigning("t1", "node1::7"))


@in_each_shell
def test_a_container_that_was_created_and_never_started_is_started_by_the_next_launch(node: Node) -> None:
    with pytest.raises(NoAnswer):
        node.launch(assigning(), FAKE_BREAK="create", PATH=_without_rm(node))
    assert node.containers()["agentless-t1"]["state"] == "created"
    assert node.launch(assigning()) == node.containers()["agentless-t1"]["id"]
    assert node.containers()["agentless-t1"]["state"] == "running"
    assert len(node.runs()) == 1


@in_each_shell
def test_another_container_is_run_in_place_of_one_that_can_never_be_started(node: Node) -> None:
    """The engine was killed in the middle of its start."""
    with pytest.raises(NoAnswer):
        node.launch(assigning(), FAKE_BREAK="create", PATH=_without_rm(node))
    first = node.containers()["agentless-t1"]["id"]
    with pytest.raises(NoAnswer):  # the first is gone; what another one may claim is looked for under the lock
        node.launch(assigning(), FAKE_BREAK="stuck")
    second = node.launch(assigning(), FAKE_BREAK="stuck")
    assert second != first
    assert {each["id"]: each["state"] for each in node.containers().values()} == {second: "running"}


@in_each_shell
def test_a_launch_that_nobody_waits_for_any_more_starts_nothing(node: Node) -> None:
    """Its connection broke while it waited for the lock; whoever asked has tried again since."""
    root = os.open("/", os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX)
        running = node.start(assigning())
        assert running.stderr is not None
        running.stderr.close()
        running.stderr = None
    finally:
        os.close(root)
    running.communicate(timeout=60)
    assert running.returncode != 0
    assert node.containers() == {}


@in_each_shell
def test_a_container_whose_start_came_through_after_all_is_not_started_again(node: Node) -> None:
    """The launch died after it had asked for the start; a short task may be over by now."""
    with pytest.raises(NoAnswer):
        node.launch(assigning(), FAKE_BREAK="create", PATH=_without_rm(node))
    assert node.launch(assigning(), FAKE_BREAK="late") == node.containers()["agentless-t1"]["id"]
    assert node.containers()["agentless-t1"]["state"] == "exited"


@in_each_shell
def test_a_container_that_was_never_started_gets_the_devices_that_its_amd_gpu_has_now(
    node: Node, tmp_path: Path
) -> None:
    """The launch died, and the node was rebooted: the render nodes have other numbers."""
    given = tmp_path / "amd-give.sh.j2"
    node.engine = docker_engine(NodeConfig("node1", "h"), Renderer([tmp_path, template_dir()]), SIGNER)
    at = Placement("node1", (0,), ("AMD-79ccd55167a2124a",), vendor="amd")
    given.write_text("echo '--device /dev/dri/renderD128'")
    running = node.start(assigning(), at=at, FAKE_BREAK="create", PATH=_without_rm(node))
    assert node.result(running).exit_code == launch_script.UNCLEAR
    given.write_text("echo '--device /dev/dri/renderD129'")
    found = node.engine.parse_launch(assigning(), node.result(node.start(assigning(), at=at)))
    assert node.containers()["agentless-t1"]["id"] == found
    assert [run[1] for run in node.runs()] == ["/dev/dri/renderD128", "/dev/dri/renderD129"]
    assert node.started() == ["agentless-t1"]


def _without_rm(node: Node) -> str:
    """A PATH whose docker cannot remove: the launcher dies before it could."""
    other = node.bin.with_name("without-rm")
    other.mkdir()
    shutil.copy(node.bin / "docker", other / "real")
    (other / "docker").write_text(f'#!/bin/sh\n[ "$1" != rm ] || exit 1\nexec {other}/real "$@"\n')
    (other / "docker").chmod(0o755)
    return f"{other}:{os.environ['PATH']}"


@in_each_shell
@pytest.mark.parametrize("broken", ["create", "start"])
def test_a_run_that_fails_leaves_no_container_behind(node: Node, broken: str) -> None:
    with pytest.raises((NodeBroken, RuntimeFailed), match="node1"):
        node.launch(assigning(), FAKE_BREAK=broken)
    assert node.containers() == {}
    assert node.launch(assigning("t2"))


@in_each_shell
def test_a_run_that_breaks_off_after_the_start_is_no_failure_but_unknown(node: Node) -> None:
    with pytest.raises(NoAnswer):
        node.launch(assigning(), FAKE_BREAK="answer")
    assert node.containers()["agentless-t1"]["state"] == "running"
    assert node.launch(assigning()) == node.containers()["agentless-t1"]["id"]


def test_a_container_that_has_ended_since_is_not_run_again(node: Node) -> None:
    node.launch(assigning())
    container = node.containers()["agentless-t1"]
    node.put("agentless-t1", container | {"state": "exited"})
    with pytest.raises(NoAnswer):
        node.launch(assigning())
    assert list(node.containers()) == ["agentless-t1"]


def test_an_engine_that_does_not_answer_runs_nothing(node: Node) -> None:
    with pytest.raises(NodeBroken, match="the Docker daemon on node1 is not running"):
        node.launch(assigning(), FAKE_BREAK="ps")
    assert node.runs() == []


def test_an_image_that_is_not_there_has_an_error_of_its_own(node: Node) -> None:
    with pytest.raises(ImageMissing, match="node1 does not have image nosuch"):
        node.launch(assigning(spec=spec(image="nosuch")))
    assert node.containers() == {}


@in_each_shell
def test_a_secret_reaches_docker_by_its_name_and_never_in_its_words(node: Node) -> None:
    hostile = 'it\'s $(a) `secret`\n\\ "x" é'
    wanted = spec(env={"PLAIN": "p"}, secret_env=("TOKEN",))
    node.launch(assigning(spec=wanted), {"TOKEN": hostile})
    assert node.containers()["agentless-t1"]["env"]["TOKEN"] == hostile
    (words,) = node.runs()
    assert words[words.index("TOKEN") - 1] == "--env"
    assert not any("secret" in word.replace("secret_env", "") for word in words)


@pytest.mark.parametrize("name", ["name", "live", "id", "number", "signature"])
def test_a_secret_may_have_a_name_that_the_script_has_for_something_else(node: Node, name: str) -> None:
    node.launch(assigning(spec=spec(secret_env=(name,))), {name: "it's mine"})
    assert node.containers()["agentless-t1"]["env"][name] == "it's mine"


def test_a_task_is_not_started_without_the_value_of_its_secret(node: Node) -> None:
    with pytest.raises(RuntimeFailed, match="the value of secret TOKEN has been deleted"):
        node.launch(assigning(spec=spec(secret_env=("TOKEN",))))
    assert node.runs() == []


@in_each_shell
def test_a_node_without_flock_gets_the_fix_and_runs_nothing(node: Node) -> None:
    node.shell = [str(shutil.which(node.shell[0])), *node.shell[1:]]
    with pytest.raises(NodeBroken, match="no flock command on node1; install util-linux there"):
        node.launch(assigning(), PATH=str(node.bin))
    assert node.runs() == []


def test_the_lock_is_the_root_folders_and_nothing_is_run_while_it_stays_held(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = os.open("/", os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX)
        with monkeypatch.context() as briefly:
            briefly.setattr(launch_script, "LOCK_WAIT", 1)
            with pytest.raises(Refused, match="other launches locked this node for 1 s"):
                node.launch(assigning())
    finally:
        os.close(root)
    assert node.runs() == []  # other tests of this machine may hold it from here on, for a moment
    assert node.launch(assigning())


def test_the_lock_is_one_that_busybox_can_take_too(node: Node) -> None:
    """Its flock has no -w."""
    real = shutil.which("flock")
    node.program("flock", f'case $1 in -[nsxu]|[0-9]) exec {real} "$@" ;; *) exit 1 ;; esac')
    assert node.launch(assigning())


def test_nothing_of_the_lock_is_left_behind(node: Node) -> None:
    node.launch(assigning())
    assert subprocess.run(["flock", "-w", "20", "/", "true"], check=False).returncode == 0


@pytest.mark.parametrize(("shell", "rounds"), [(["sh"], 8), (["busybox", "sh"], 4)], ids=["sh", "busybox sh"])
def test_of_two_launches_at_once_for_one_gpu_exactly_one_wins(tmp_path: Path, shell: list[str], rounds: int) -> None:
    node = Node(tmp_path, shell)
    for attempt in range(rounds):
        racers = [assigning(f"{name}{attempt}", "node1::0,1" if name == "a" else "node1::1") for name in "ab"]
        running = [node.start(racer) for racer in racers]
        results = [node.result(process) for process in running]
        assert sorted(result.exit_code for result in results) == [0, 75]
        (won,) = node.containers()
        (node.state / f"{won}.container").unlink()


def test_two_launches_of_one_task_at_once_start_it_once(node: Node) -> None:
    running = [node.start(assigning()) for _ in range(3)]
    ids = {node.engine.parse_launch(assigning(), node.result(process)) for process in running}
    assert ids == {node.containers()["agentless-t1"]["id"]}
    assert len(node.runs()) == 1


# ------------------------------------------------------------------ between create and start


@contextlib.contextmanager
def in_the_gap(node: Node, of: Task) -> Iterator[Callable[[], None]]:
    """A launch that has created its container and does not come to start it; gives what kills it with all it began."""
    launcher = node.start(of, FAKE_BREAK="hang")

    def kill() -> None:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()

    try:
        while not starters_of(of):
            assert launcher.poll() is None
            time.sleep(0.01)
        yield kill
    finally:
        if launcher.poll() is None:
            kill()


def starters_of(of: Task) -> list[Path]:
    """The arguments of processes on this machine that say that they start the container of this task."""
    (gpu,) = placement(str(of.spec.needs)).gpu_uuids
    words, found = f"|{gpu}||||{of.id}|{of.owner}".encode(), []
    for file in process_files("cmdline"):
        with contextlib.suppress(OSError):
            said = file.read_bytes().split(b"\0")
            if any(each.startswith(b"agentless-claim=") and each.endswith(words) for each in said):
                found.append(file)
    return found


@in_each_shell
def test_a_container_that_waits_for_its_start_holds_its_gpus_and_nobody_waits_for_it(node: Node) -> None:
    with in_the_gap(node, assigning("t1")):
        with pytest.raises(Refused, match=r"GPU 0 is held by task t1 of me@here$"):
            node.launch(assigning("t2"))
        assert node.launch(assigning("t3", "node1::1"))
    assert node.started() == ["agentless-t3"]


@in_each_shell
def test_what_another_engine_has_created_and_is_starting_holds_its_gpus(node: Node, tmp_path: Path) -> None:
    """That engine is not asked, and no control group is there before the start."""
    (tmp_path / "other").mkdir()
    with in_the_gap(node, assigning("t1")), pytest.raises(Refused, match=r"GPU 0 is held by task t1 of me@here$"):
        node.launch(assigning("t2"), FAKE_DOCKER=str(tmp_path / "other"))


@in_each_shell
def test_a_launcher_that_is_killed_before_the_start_leaves_it_to_the_next_launch_of_the_task(node: Node) -> None:
    with in_the_gap(node, assigning()) as kill:
        kill()
        with pytest.raises(Refused, match="GPU 0 is held by task t1"):
            node.launch(assigning("t2"))
        assert node.launch(assigning()) == node.containers()["agentless-t1"]["id"]
    assert node.started() == ["agentless-t1"]
    assert len(node.runs()) == 1


@in_each_shell
def test_a_second_launch_of_a_task_that_is_being_started_starts_nothing(node: Node) -> None:
    """It waits for the first, and if that dies it is not known what became of it until the node is asked again."""
    with in_the_gap(node, assigning()) as kill:
        second = node.start(assigning())
        kill()
        with contextlib.suppress(NoAnswer):  # where it looked before the first was dead
            assert node.engine.parse_launch(assigning(), node.result(second)) in str(node.containers())
        assert node.launch(assigning()) == node.containers()["agentless-t1"]["id"]
    assert node.started() == ["agentless-t1"]
    assert len(node.runs()) == 1


def test_a_second_launch_waits_for_the_first_to_start_the_task(node: Node) -> None:
    with in_the_gap(node, assigning()) as kill:
        second = node.start(assigning())
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(1)
        container = node.containers()["agentless-t1"]
        node.put("agentless-t1", container | {"state": "running"})
        kill()
        assert node.engine.parse_launch(assigning(), node.result(second)) == container["id"]
    assert node.started() == []


def test_what_is_being_started_is_not_removed_and_what_nobody_starts_is(node: Node) -> None:
    with in_the_gap(node, assigning()) as kill:
        reap = node.engine.reap(node.containers()["agentless-t1"]["id"])
        assert node.result(node.begin(reap)).ok
        assert list(node.containers()) == ["agentless-t1"]
        kill()
        assert node.result(node.begin(reap)).ok
    assert node.containers() == {}


@in_each_shell
def test_what_a_dead_launch_has_left_is_started_without_the_lock(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may never come to an end with it."""
    monkeypatch.setattr(launch_script, "LOCK_WAIT", 20)  # other tests of this machine may hold it for a moment
    with in_the_gap(node, assigning()) as kill:
        kill()
        with in_the_gap(node, assigning()):
            assert len(node.runs()) == 1
            assert node.launch(assigning("t3", "node1::1"))


@in_each_shell
def test_a_container_whose_starter_cannot_be_run_is_not_said_to_have_failed(node: Node) -> None:
    command = node.engine.launches([Launch(assigning(), placement("node1::0"))])
    broken = replace(command, script=command.script.replace("exec /bin/sh ", "exec /nowhere/sh "))
    with pytest.raises(NoAnswer):
        node.engine.parse_launch(assigning(), node.result(node.begin(broken)))
    assert node.launch(assigning()) == node.containers()["agentless-t1"]["id"]
    assert len(node.runs()) == 1


@in_each_shell
def test_who_starts_it_has_no_secrets_any_more(node: Node) -> None:
    of = assigning("t1secret", spec=spec(secret_env=("TOKEN",)))
    launcher = node.start(of, {"TOKEN": "abc"}, FAKE_BREAK="hang")
    try:
        while not (seen := [env for env in map(_environment, starters_of(of)) if env]):
            assert launcher.poll() is None
            time.sleep(0.01)
        assert all(b"FAKE_DOCKER=" in env and b"TOKEN" not in env for env in seen)
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()


def _environment(process: Path) -> bytes:
    """Empty while a program is being replaced by another, and when it has ended."""
    with contextlib.suppress(OSError):
        return process.with_name("environ").read_bytes()
    return b""


@pytest.mark.parametrize("node", SHELLS[:2], indirect=True, ids=" ".join)  # the third has them inside
@pytest.mark.parametrize("broken", ["sed", "grep"])
def test_who_cannot_find_out_who_holds_what_starts_nothing(node: Node, broken: str) -> None:
    """It may have no further process, or no memory for one."""
    node.launch(assigning("t1"))
    node.program(broken, "kill -s KILL $$")
    with pytest.raises(NodeBroken):
        node.launch(assigning("t2"))
    assert node.started() == ["agentless-t1"]


def test_a_client_that_warns_after_the_id_is_no_failure(node: Node) -> None:
    real = shutil.copy(node.bin / "docker", node.bin / "real")
    node.program("docker", f'{real} "$@"; code=$?; echo "WARNING: no swap limit" >&2; exit $code')
    assert node.launch(assigning()) == node.containers()["agentless-t1"]["id"]


# ------------------------------------------------------------------ several in one script


def at_once(node: Node, *tasks: Task, **env: str) -> list[str | Exception]:
    """Launches in one script: the id of each, or why not."""
    wanted = [Launch(each, placement(str(each.spec.needs))) for each in tasks]
    result = node.result(node.begin(node.engine.launches(wanted), **env))
    found: list[str | Exception] = []
    for each, answer in zip(tasks, node.engine.answers(len(tasks), result), strict=True):
        try:
            found.append(node.engine.parse_launch(each, answer))
        except AgentlessError as error:
            found.append(error)
    return found


@in_each_shell
def test_of_several_launches_in_one_script_each_has_its_own_answer(node: Node) -> None:
    node.launch(assigning("t9", "node1::3"))
    one, held, missing, other = at_once(
        node,
        assigning("t1", "node1::0"),
        assigning("t2", "node1::3"),
        assigning("t3", "node1::1", spec=spec(image="nosuch")),
        assigning("t4", "node1"),
    )
    there = node.containers()
    assert (one, other) == (there["agentless-t1"]["id"], there["agentless-t4"]["id"])
    assert str(held) == "node1::3: GPU 3 is held by task t9 of me@here"
    assert isinstance(missing, ImageMissing)
    assert sorted(node.started()) == ["agentless-t1", "agentless-t4", "agentless-t9"]


@in_each_shell
def test_two_in_one_script_do_not_get_the_same_gpu(node: Node) -> None:
    one, other = at_once(node, assigning("t1"), assigning("t2"))
    assert isinstance(one, str)
    assert str(other) == "node1::0: GPU 0 is held by task t1 of me@here"


def test_where_the_lock_is_not_to_be_had_all_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_script, "LOCK_WAIT", 1)
    root = os.open("/", os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX)
        errors = at_once(node, assigning("t1"), assigning("t2", "node1::1"))
    finally:
        os.close(root)
    assert all("locked this node" in str(error) for error in errors)
    assert node.runs() == []


@in_each_shell
def test_a_script_that_ends_in_the_middle_says_nothing_of_what_it_began(node: Node) -> None:
    """Its shell may have no further process. What it has begun has ended before it, and is known."""
    tasks = [assigning("t1", "node1::0"), assigning("t2", "node1::1")]
    script = node.engine.launches([Launch(each, placement(str(each.spec.needs))) for each in tasks]).script
    node.shell = [*node.shell, "-c", '(eval "$(cat)"); printf "\n@ %s " "$?"']
    said = node.result(node.begin(Command(script.replace("\nlaunch 2 ", "\nexit 2 ")))).stdout
    out, _, rest = said.partition(b"\n@ ")
    one, other = node.engine.answers(2, Result(int(rest.split()[0]), out))
    assert node.engine.parse_launch(tasks[0], one) == node.containers()["agentless-t1"]["id"]
    with pytest.raises(NoAnswer):
        node.engine.parse_launch(tasks[1], other)


def test_one_that_the_script_did_not_come_to_answer_may_have_been_started(node: Node) -> None:
    answers = node.engine.answers(2, Result(137, b"2|" + b"a" * 64 + b"\n2=0\n"))
    assert node.engine.parse_launch(assigning(), answers[1]) == "a" * 64
    with pytest.raises(NoAnswer):
        node.engine.parse_launch(assigning(), answers[0])


def test_a_stranger_to_the_placement_is_named_by_its_uuid(node: Node) -> None:
    """A task that came back from labels may lack the index."""
    node.launch(assigning("t1"))
    unplaced = replace(assigning("t2"), status=task(state="pending").status)
    result = node.result(node.start(assigning("t2")))
    with pytest.raises(Refused, match=f"GPU {uuid('node1', 0)} is held by task t1"):
        node.engine.parse_launch(unplaced, result)
