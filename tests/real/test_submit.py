"""What a submit makes of its options and targets, as the node's own Docker sees it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from pathlib import Path

import pytest

from tests.proc import process_files
from tests.real.cli import Cli, Events, containers, inspect, until

SECRET = "correct-horse-battery"
SECRET_2 = "staple-of-the-caller"
OPTIONS = (
    "--name train --cores 0.5 --memory 64MiB --shm-size 8M -e PLAIN=value --env TAKEN --workdir /tmp --user 65534 "
    f"--network host --stop-grace 3s --label team=vision -s TOKEN={SECRET} --secret-env CALLERS --image busybox:latest"
).split()


class Whole:
    """A task with every option, as it was seen while it ran."""

    def __init__(self, lab):
        cli = Cli(lab, CALLERS=SECRET_2, TAKEN="from the caller").settle()
        folder = lab.root / "data"
        folder.mkdir(exist_ok=True)
        mounts = ("--mount", f"{folder}:/data", "--mount", f"{folder}:/fixed:ro")
        words = ("submit", "node1:0::0,1", *OPTIONS, *mounts, "--", "sh", "-c", "echo ready; exec sleep 60")
        self.dry = cli(*words[:-4], "--dry-run", *words[-4:]).out
        events = Events(cli, last="launched")
        with ProcessLists(lab.nodes["node1"]) as seen:
            self.id = cli(*words).out.strip()
        # What the caller typed is their own.
        self.argv = "\n".join(line for line in seen.lines if " submit " not in line)
        until(lambda: cli("logs", self.id).out)
        self.container = inspect(lab.nodes["node1"], self.id)
        self.host, self.config = self.container["HostConfig"], self.container["Config"]
        self.labels = json.dumps(self.config["Labels"])
        self.view = cli.task(self.id)
        self.shown = cli("show", self.id).out + json.dumps(self.view)
        self.state = "".join(path.read_text(errors="replace") for path in cli.state.rglob("*") if path.is_file())
        self.published = json.dumps(events.all())


class ProcessLists:
    """Every command line on this machine, and so on the node, that another user could have seen meanwhile.

    `docker create` is over in an instant, so on this node it begins when its command line has been seen.
    """

    def __init__(self, node):
        self._docker, self._begins, self._seen = (node.dir / "bin" / name for name in ("docker", "begins", "seen"))

    def __enter__(self):
        wait = f"touch {self._begins}; until [ -e {self._seen} ]; do sleep 0.05; done"
        self._docker.write_text(f'#!/bin/sh\n[ "$1" != create ] || {{ {wait}; }}\nexec /usr/bin/docker "$@"\n')
        self._docker.chmod(0o755)
        self.lines, self._over = set(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        for file in (self._docker, self._begins, self._seen):
            file.unlink(missing_ok=True)

    def _look(self):
        while not self._over.wait(0.01):
            has_begun = self._begins.exists()
            for file in process_files("cmdline"):
                with contextlib.suppress(OSError):
                    self.lines.add(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            if has_begun:
                self._seen.touch()


@pytest.fixture(scope="module")
def whole(lab):
    return Whole(lab)


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("config Image", "busybox:latest"),
        ("host NanoCpus", 500_000_000),
        ("host Memory", 64 << 20),
        ("host ShmSize", 8_000_000),
        ("config WorkingDir", "/tmp"),
        ("config User", "65534"),
        ("host NetworkMode", "host"),
        ("config StopTimeout", 3),
        ("host CpusetMems", "0"),
        ("host CpusetCpus", Path("/sys/devices/system/node/node0/cpulist").read_text().strip()),
        ("host AutoRemove", False),
        ("host Privileged", False),
        ("config Cmd", ["sh", "-c", "echo ready; exec sleep 60"]),
    ],
)
def test_an_option_reaches_docker(whole, where, expected):
    part, key = where.split()
    assert getattr(whole, part)[key] == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PLAIN", "value"),
        ("TAKEN", "from the caller"),
        ("TOKEN", SECRET),
        ("CALLERS", SECRET_2),
        ("AGENTLESS_NODE", "node1"),
        ("AGENTLESS_GPUS", "0,1"),
    ],
)
def test_a_variable_reaches_the_task(whole, variable, value):
    assert f"{variable}={value}" in whole.config["Env"]


def test_a_task_knows_its_id(whole):
    assert f"AGENTLESS_TASK_ID={whole.id}" in whole.config["Env"]


def test_mounts(lab, whole):
    found = {(m["Source"], m["Destination"], m["RW"]) for m in whole.container["Mounts"]}
    assert found == {(str(lab.root / "data"), "/data", True), (str(lab.root / "data"), "/fixed", False)}


def test_gpus_are_asked_for_by_uuid(lab, whole):
    assert [request["DeviceIDs"] for request in whole.host["DeviceRequests"]] == [lab.nodes["node1"].gpu_uuids]


def test_the_label_is_the_users_and_the_others_carry_the_task(lab, whole):
    """The claim in plain words, and all of the task for a controller that has lost its memory."""
    labels = dict(whole.config["Labels"])
    carried = json.loads(labels.pop("agentless.spec"))["spec"]
    assert re.fullmatch("[0-9a-f]{16}", labels.pop("agentless.controller"))
    labels.pop("agentless.numa", None)  # where it is pinned, on a machine with NUMA nodes
    assert re.fullmatch("1:[0-9a-f]{64}", labels.pop("agentless.signature"))
    assert {key: value for key, value in labels.items() if value} == {
        "team": "vision",
        "agentless.cores": "0.5",
        "agentless.memory": "67108864",
        "agentless.task": whole.id,
        "agentless.owner": whole.view["owner"],
        "agentless.gpus": ",".join(lab.nodes["node1"].gpu_uuids),
    }
    assert carried["command"] == ["sh", "-c", "echo ready; exec sleep 60"]
    assert carried["name"] == "train"


def test_the_name_means_the_task(whole):
    assert (whole.view["id"], whole.view["name"]) == (whole.id, "train")


def test_privileged_is_asked_for(agentless):
    """Tried without running it: not every machine that runs these tests may."""
    assert " --privileged " in agentless("submit", "node1", "--privileged", "--dry-run", "--", "true").out


def test_a_task_without_gpus_asks_for_none(lab, agentless):
    """Neither by an empty request nor by what NVIDIA's runtime takes from an image."""
    task = agentless.submit("node1", "--", "sleep", "60")
    container = inspect(lab.nodes["node1"], task)
    assert not container["HostConfig"]["DeviceRequests"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in container["Config"]["Env"]


def test_the_inventorys_image_is_the_default(lab, agentless):
    task = agentless.submit("node1", "--", "sleep", "60")
    assert inspect(lab.nodes["node1"], task)["Config"]["Image"] == "busybox"


# ---------------------------------------------------------------------- secrets


@pytest.mark.parametrize("secret", [SECRET, SECRET_2])
@pytest.mark.parametrize("place", ["dry", "argv", "shown", "published", "labels", "state"])
def test_a_secret_is_nowhere_but_in_the_container(whole, place, secret):
    """Not in the arguments of docker, not in the state folder with its log once the task runs, not in an answer."""
    text = getattr(whole, place)
    assert "TOKEN" in text, "this is not where one would look for it"
    assert secret not in text


def test_a_dry_run_masks_secrets(whole):
    assert "export TOKEN=***\n" in whole.dry


def test_the_names_of_all_variables_are_shown(whole):
    assert whole.view["env_names"] == ["CALLERS", "PLAIN", "TAKEN", "TOKEN"]


# ---------------------------------------------------------------------- ways to submit


def test_wait_returns_the_tasks_exit_code(agentless):
    agentless("submit", "node1", "--wait", "--", "sh", "-c", "exit 7", code=7)


def test_follow_puts_each_stream_where_it_belongs(agentless):
    done = agentless("submit", "node1", "--follow", "--", "sh", "-c", "echo out; echo err >&2; exit 9", code=9)
    assert done.out == "out\n"
    assert done.err.splitlines()[-2] == "err"
    assert "failed (9)" in done.err.splitlines()[-1]


def test_json_is_a_list_of_tasks(agentless):
    tasks = agentless.json("submit", "node1::0", "node2::1", "--", "sleep", "60")
    assert [(t["target"], t["state"], t["gpus"]) for t in tasks] == [
        ("node1::0", "running", [0]),
        ("node2::1", "running", [1]),
    ]


def test_a_dry_run_starts_nothing(lab, agentless):
    agentless("submit", "node1::0", "--dry-run", "--", "true")
    assert containers(lab.nodes["node1"]) == []
    assert agentless.json("ps") == []


def test_a_dry_run_prints_what_the_node_would_run(lab, agentless):
    """Piped to the node's own shell, it starts the task."""
    script = agentless("submit", "node1::0,1", "-e", "A=it's $HOME", "--dry-run", "--", "sleep", "60").out
    name = lab.nodes["node1"].sh(script).stdout.strip()
    assert "A=it's $HOME" in json.loads(lab.nodes["node1"].sh(f"docker inspect {name}").stdout)[0]["Config"]["Env"]


def test_a_pipe_gets_the_id_and_nothing_else(agentless):
    assert re.fullmatch(r"[0-9a-z]{11}\n", agentless("submit", "node1", "--", "true").out)


def test_hostile_words_arrive_as_they_are(agentless):
    words = ("$HOME", "`id`", "a'b\"c", "x\ny", "é🎉", "*", "\\", "", "-n", "{{ x }}")
    command = ("sh", "-c", 'printf "[%s]" "$@"', "sh", *words, "\\span:{1..3}")
    done = agentless("submit", "node1", "--follow", "--", *command)
    assert done.out == "".join(f"[{word}]" for word in (*words, "span:{1..3}"))


def test_a_command_of_100_kb_runs(agentless):
    command = ("sh", "-c", "echo $# ${#100}", "sh", *["x" * 999] * 100)
    assert agentless("submit", "node1", "--follow", "--", *command).out == "100 999\n"


# ---------------------------------------------------------------------- targets


def test_several_targets_are_one_batch_of_one_task_each(agentless):
    tasks = agentless.json("submit", "node1::0", "-t", "node2::0", "--target", "node1::1", "--", "sleep", "60")
    assert [t["target"] for t in tasks] == ["node1::0", "node2::0", "node1::1"]
    assert {t["batch"] for t in tasks} == {tasks[0]["id"]}


def test_the_batch_of_a_task_can_be_listed(agentless):
    tasks = agentless.json("submit", "node1::0", "node2::0", "--", "sleep", "60")
    agentless.submit("node1", "--", "sleep", "60")
    listed = agentless.json("ps", "--batch", tasks[1]["id"])
    assert [task["id"] for task in listed] == [task["id"] for task in tasks]


def test_a_target_that_cannot_be_served_fails_alone(agentless):
    """With its reason, and each of them with its own; the others run."""
    done = agentless("submit", "node1::7", "node1::0", "node2:9", "--json", "--", "sleep", "60", code=3)
    assert [task["target"] for task in done.json] == ["node1::0"]
    assert "no node can run node1::7: node1 has no GPU 7, only GPUs 0,1" in done.err
    assert "no node can run node2:9: node2 has no NUMA node 9, only 0" in done.err


def test_two_targets_of_a_batch_cannot_have_one_gpu(agentless):
    tasks = agentless.json("submit", "node1::0", "node1::0,1", "--no-queue", "--", "sleep", "60", code=3)
    assert [task["target"] for task in tasks] == ["node1::0"]


def test_a_batch_that_names_an_unknown_node_starts_nothing(lab, agentless):
    """It is a typing error, and what was typed is corrected and sent again as a whole."""
    words = ("submit", "node2", "nod1", "--image", "busybox", "--", "sleep", "60")
    assert "did you mean 'node1'?" in agentless(*words, code=2).err
    agentless("submit", "node2", "--wait", "--", "true")
    assert len(containers(lab.nodes["node2"])) == 1
