"""podman in Docker's place: what it is told, and what its answers mean. Those in `data/podman` are of podman 4.3.1.

The script there is written by `AGENTLESS_WRITE=1 pytest tests/pure/test_podman.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentless.engines.docker.engine import DockerEngine
from agentless.engines.podman.complaints import _KNOWN
from agentless.errors import Held, ImageMissing, NodeBroken, RuntimeFailed
from agentless.model.command import Result
from agentless.model.containers.claim import labels_of
from agentless.model.containers.launch import Launch
from agentless.model.containers.signature import SIGNATURE
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.task import Placement
from agentless.model.tasks.task_event import Exited
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.explain.obstacles import never, obstacles
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies.pack import cost
from agentless.rules.tasks.reconcile import reconcile
from tests.engines import podman_engine
from tests.pure.build import NOW, SIGNER, cluster, placement, seen, spec, task

DATA = Path(__file__).parent / "data" / "podman"
COMPLAINTS = json.loads((DATA / "complaints.json").read_text())
AT = Placement("node1", (0,), ("GPU-a",))
SHELLS = [["dash"], ["bash"], ["busybox", "sh"]]
CID = "1b295bbcdc4b234ba47007ce3252bf86fceeaab187a0248b2ba44c9482d6a21a"


def podman(*words: str) -> DockerEngine:
    node = NodeConfig("node1", "h", user="ann", docker=words or ("podman",))
    return podman_engine(node, Renderer([template_dir()]), SIGNER)


def read(name: str) -> str:
    return (DATA / name).read_text()


# -------------------------------------------------------------------------------------------------------- containers

CONTAINERS = {
    c.labels["agentless.task"]: c
    for c in podman().parse_containers(Result(0, read("containers-4.3.txt").encode()), 0.0)
}


def test_every_state_of_a_container_is_read() -> None:
    assert {name: (c.state, c.exit_code, c.oom_killed) for name, c in CONTAINERS.items()} == {
        "run": ("running", None, False),
        "renamed": ("running", None, False),
        "pau": ("paused", None, False),
        "cre": ("created", None, False),
        "ini": ("created", None, False),
        "bad": ("created", None, False),
        "ex0": ("exited", 0, False),
        "ex3": ("exited", 3, False),
        "oom": ("exited", 137, True),
        "down": ("exited", 255, False),
    }


def test_a_name_is_read_without_its_claim() -> None:
    assert (CONTAINERS["run"].name, CONTAINERS["renamed"].name) == ("agentless-run", "renamed")


def test_what_ran_when_the_node_went_down_has_failed_for_that() -> None:
    ran = task("down", "node1::0", "running")
    events = reconcile(ran, CONTAINERS["down"], NOW)
    assert Exited(255, False, None, "the node went down while it ran") in events


@pytest.mark.parametrize(("status", "state"), [("stopping", "running"), ("stopped", "exited"), ("unknown", "running")])
def test_a_state_that_docker_has_not_is_one_that_it_has(status: str, state: str) -> None:
    line = read("containers-4.3.txt").splitlines()[1].replace('"Status":"running"', f'"Status":"{status}"', 1)
    (found,) = podman().parse_containers(Result(0, line.encode()), 0.0)
    assert found.state == state


def test_an_answer_that_names_what_is_gone_says_so_of_no_other() -> None:
    gone = Result(125, b"", read("gone-4.3.txt").encode())
    assert podman().says_gone(gone, ["0" * 64, "1" * 64])
    assert not podman().says_gone(gone, ["0" * 64, "2" * 64])


def test_what_has_ended_as_we_know_it_is_not_asked_for_again() -> None:
    listed = podman().parse_list(Result(0, read("list-4.3.txt").encode()))
    known = {name for name, c in CONTAINERS.items() if podman().has_ended_so(c, listed[c.id])}
    assert known == {"ex0", "ex3", "oom"}


# ------------------------------------------------------------------------------------------------------------- facts


def facts(info: str, *lines: str, code: int = 0) -> Any:
    sections = {
        "docker.info": Result(code, "\n".join((info, *lines)).encode()),
        "docker.containers": Result(0, read("list-4.3.txt").encode()),
    }
    return podman().parse_facts(sections, 1795373644.0, 1795373645.0)


INFO = read("info-4.3.txt").strip()
ROOTLESS = INFO.replace("false", "true").replace("v1", "v2")


def test_root_s_podman_with_a_cdi_file_hands_out_gpus() -> None:
    found = facts(INFO, "now 2026-11-22T18:54:04Z", "cdi nvidia.com/gpu /etc/cdi/nvidia.yaml", "no linger")
    assert (found.version, found.toolkits["nvidia"].ready, found.error, found.clock, len(found.listed)) == (
        "podman 4.3.1",
        True,
        None,
        0.0,
        10,
    )


def test_a_clock_that_is_off_is_noticed() -> None:
    assert facts(INFO, "now 2026-11-22T19:54:04Z").clock == pytest.approx(3600, abs=1)


@pytest.mark.parametrize(
    ("info", "lines", "words"),
    [
        (
            INFO.replace("4.3.1", "4.0.2"),
            (),
            "podman 4.0.2 on node1 is too old; install podman 4.1 or newer for GPU support",
        ),
        (
            INFO.replace("false", "true"),
            (),
            "rootless podman on node1 cannot limit or pause containers with cgroups v1",
        ),
        (ROOTLESS, ("no linger",), "sudo loginctl enable-linger ann"),
        (
            INFO.replace("}", ',"runtime":{"name":"crun","version":"crun version 1.28"}}'),
            ("hybrid",),
            "crun on node1 cannot start containers: control groups of version 1 and 2 are mounted there at once",
        ),
        (
            INFO.replace("}", ',"runtime":null}'),
            (),
            "podman on node1 cannot start containers: its runtime does not run",
        ),
        (INFO, ("hidepid",), "/proc on node1 hides which containers hold GPUs (hidepid)"),
    ],
)
def test_a_podman_that_cannot_do_it_says_what_it_lacks(info: str, lines: tuple[str, ...], words: str) -> None:
    assert words in facts(info, *lines).error


@pytest.mark.parametrize(
    ("info", "lacks"),
    [
        (INFO, []),
        (INFO.replace("}", ',"controllers":["memory"]}'), []),  # version 1: it lists what it knows of
        (ROOTLESS.replace("}", ',"controllers":["cpuset","cpu","io","memory","pids"]}'), []),
        (ROOTLESS.replace("}", ',"controllers":["memory","pids"]}'), ["cpu", "cpuset"]),
        (ROOTLESS.replace("}", ',"controllers":[]}'), ["cpu", "cpuset", "memory"]),
        (ROOTLESS.replace("}", ',"controllers":null}'), []),
    ],
)
def test_the_control_groups_that_it_may_not_use_are_known(info: str, lacks: list[str]) -> None:
    assert sorted(facts(info).lacks) == lacks


def test_a_user_s_podman_that_lacks_nothing_is_fine() -> None:
    assert facts(ROOTLESS).error is None


@pytest.mark.parametrize(("name", "lines"), [("runc", ("hybrid",)), ("crun", ())])
def test_a_runtime_that_can_start_containers_is_fine(name: str, lines: tuple[str, ...]) -> None:
    assert facts(INFO.replace("}", f',"runtime":{{"name":"{name}"}}}}'), *lines).error is None


def test_a_warning_at_each_call_spoils_no_answer() -> None:
    warning = (
        'time="2026-11-26T09:22:27Z" level=warning msg="Using cgroups-v1 which is deprecated in favor of cgroups-v2 '
        'with Podman v5 and will be removed in a future version."'
    )
    found = facts(f"{warning}\n{INFO}", warning)
    assert (found.version, found.error, len(found.listed)) == ("podman 4.3.1", None, 10)


def test_a_node_without_flock_is_told_so() -> None:
    assert facts(ROOTLESS, "no flock").error == "no flock command on node1; install util-linux there"


def test_no_podman_is_a_sentence() -> None:
    assert "no podman command on node1" in facts("sh: 1: podman: not found", code=127).error


@pytest.mark.parametrize(("said", "sentence"), [(said, s) for s, saids in COMPLAINTS.items() for said in saids])
def test_a_complaint_becomes_its_sentence_with_the_fix(said: str, sentence: str) -> None:
    assert podman().complaint(said) == sentence


def test_every_sentence_has_a_complaint_on_record() -> None:
    assert len(COMPLAINTS) >= len(_KNOWN)


# ------------------------------------------------------------------------------------------------------------ launch


def test_the_launch_script_is_the_one_on_record() -> None:
    of = task("t3", "node1::0,1", "assigning", spec=spec("python", "train.py", secret_env=("TOKEN",), cores=2))
    at = Placement(
        "node1", (0, 1), ("GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a", "GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f")
    )
    text = podman("sudo", "podman").launches([Launch(of, at, secrets={"TOKEN": "s3cret"})]).text(masked=True)
    file = DATA / "launch.sh"
    if os.environ.get("AGENTLESS_WRITE"):
        file.write_text(text)
    assert text == file.read_text()


def test_an_env_is_refused() -> None:
    with pytest.raises(RuntimeFailed, match="node1 uses podman, which does not support envs"):
        podman().launches([Launch(task("t1", state="assigning", spec=spec(image="agentless/train:3")), placement())])


def test_an_image_that_is_not_there_is_to_be_fetched() -> None:
    of = task("t1", state="assigning")
    with pytest.raises(ImageMissing):
        podman().parse_launch(of, Result(125, b"", b"Error: lab/busybx: image not known\n"))


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=GPU-xxx", "gpus"),
        ('Error: default OCI runtime "crun" not found: invalid argument', "start"),
        ("Error: cannot find UID/GID for user ann: no subuid ranges found", "engine"),
        ("Error: crun: write: No space left on device: OCI runtime error", "start"),
    ],
)
def test_a_failure_for_a_reason_of_the_node_is_told_from_those_of_the_task(said: str, fault: str) -> None:
    with pytest.raises(NodeBroken, match="node1") as caught:
        podman().parse_launch(task(state="assigning"), Result(126, b"", said.encode()))
    assert caught.value.fault == fault


# ------------------------------------------------------------------------------ the script, run by real shells


class Node:
    """A node with a stand-in for podman, which says what is in `live` and writes down what it was told, and how."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder, self.shell = folder, shell
        self.live = folder / "live"
        self.live.write_text("")
        self.written = folder / "calls"
        (folder / "static").mkdir()
        self._program(
            "podman",
            f'[ ! -e /proc/self/fd/9 ] || echo "holds the lock" >>{self.written}\n'
            f'echo "$1 in $PWD" >>{self.written}\n'
            "case $* in\n"
            f"  ps*) cat {self.live} ;;\n"
            f'  create*) echo \'time="x" level=warning msg="odd"\' >&2; echo {CID} ;;\n'
            f"  *StaticDir*) echo {folder}/static ;;\n"
            "  inspect*) echo created ;;\n"
            f"  start*) echo odd >&2; echo {CID} ;;\n"
            "esac",
        )

    def _program(self, name: str, text: str) -> str:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return str(file)

    def conmon(self, name: str) -> None:
        """Have a container of another user's podman there.

        Among PIDs of its own, since every launch that sees it heeds it, also those of tests that run beside this one.
        """
        own = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*own, "true"], check=False, capture_output=True).returncode != 0:
            pytest.skip("no user namespaces here")
        conmon = self._program("conmon", "while :; do sleep 0.1; done")
        argv = f"{conmon} --api-version 1 -c {'f' * 64} -n {name} >/dev/null"
        begin = f'{argv} & until grep -qsx conmon /proc/[0-9]*/comm; do :; done; exec "$@"'
        self.shell = [*own, "sh", "-c", begin, "sh", *self.shell]

    def launch(self, **needs: Any) -> str:
        of = task("t1", "node1::0", "assigning", spec=spec(), **needs)
        command = podman().launches([Launch(of, AT)])
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        ran = subprocess.run(
            self.shell, input=command.text().encode(), env=env, capture_output=True, cwd="/", check=False
        )
        return podman().parse_launch(of, Result(ran.returncode, ran.stdout, ran.stderr))

    def own(self, line: str) -> None:
        """Have podman list this container, which a launch of the task has left."""
        labels = labels_of(task("t1", "node1::0", "assigning", spec=spec()), AT, SIGNER.controller)
        self.live.write_text(f"{SIGNER.sign(labels, 'node1')[SIGNATURE]}|{line}\n")

    def calls(self) -> list[str]:
        return self.written.read_text().splitlines()


@pytest.fixture(params=SHELLS, ids=" ".join)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"no {request.param[0]} here")
    return Node(tmp_path, request.param)


def test_a_container_is_made_and_started_in_its_own_folder_and_nothing_of_it_holds_the_lock(node: Node) -> None:
    assert node.launch() == CID
    assert node.calls() == ["ps in /", "create in /", "inspect in /", f"start in {node.folder}/static"]


def test_one_that_was_made_and_never_started_is_started(node: Node) -> None:
    node.own(f"{CID}|agentless-t1.me_here....GPU-a|Created|GPU-a||||t1|me@here")
    assert node.launch() == CID
    assert [call.split()[0] for call in node.calls()] == ["ps", "inspect", "inspect", "start"]


def test_one_that_ran_when_the_node_went_down_is_not_begun_again(node: Node) -> None:
    node.own(read("live-4.3.txt").splitlines()[0].replace("|down|", "|t1|"))
    assert node.launch() == read("live-4.3.txt")[:64]
    assert [call.split()[0] for call in node.calls()] == ["ps"]


def test_one_that_ran_when_the_node_went_down_holds_no_gpu(node: Node) -> None:
    node.live.write_text(f"|{read('live-4.3.txt').splitlines()[0]}\n")
    assert node.launch() == CID


def test_a_gpu_of_another_users_container_is_held(node: Node) -> None:
    node.conmon("agentless-x9.bob_there....GPU-b.GPU-a")
    with pytest.raises(Held, match="task x9 of bob_there"):
        node.launch()


def test_another_gpu_of_another_users_container_is_not(node: Node) -> None:
    node.conmon("agentless-x9.bob_there....GPU-b.GPU-ab")
    assert node.launch() == CID


def test_who_wants_the_node_alone_in_another_users_podman_has_it_alone(node: Node) -> None:
    node.conmon("agentless-x9.bob_there.1...")
    with pytest.raises(Held, match="cannot be shared with task x9"):
        node.launch()


def test_a_container_that_podman_has_named_is_not_taken_for_anothers(node: Node) -> None:
    """Its own process says that it lives; that it was never started is what podman says."""
    node.own(f"{'f' * 64}|agentless-t1.me_here....GPU-a|Created|GPU-a||||t1|me@here")
    node.conmon("agentless-t1.me_here....GPU-a")
    assert node.launch() == "f" * 64
    assert node.calls()[-1].startswith("start")


def test_the_name_says_what_a_task_claims() -> None:
    of = task("t1", state="assigning", owner="a.b|c@host")
    script = podman().launches([Launch(of, Placement("node1", (0, 1), ("GPU-a", "GPU-b")))]).script
    assert "--name agentless-t1.a_b_c_host....GPU-a.GPU-b " in script


def test_a_task_in_an_env_is_refused_on_podman_with_the_words_of_explain():
    on = cluster(seen("node1"), docker=("podman",))
    wish = spec(image="agentless/a:1", container="a:1", image_id="sha256:1", needs=parse_target("node1::0"))
    words = "node1 uses podman, which does not support envs"
    assert plan(on, [task("t1", state="pending", spec=wish)], NOW, {None: cost}).starts == {}
    assert [str(each) for each in obstacles(on.nodes["node1"], wish, "me", NOW)] == [words]
    assert words in str(never(on, wish))
