"""Files go along with a task as they were at the submit, and what it makes comes back, whatever happens meanwhile."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex
import subprocess

import pytest

from agentless.paths import template_dir
from tests.real.cli import Cli, Done, containers, inspect, inventory_of, until


class Person(Cli):
    """Somebody with a folder to work in."""

    def __init__(self, lab, folder, name: str = "workspace") -> None:
        super().__init__(lab, name)
        self.folder = folder

    def here(self, *words: str, code: int | None = 0) -> Done:
        """Run a command in the folder."""
        return self._run(words, code, "", self.folder, {})

    def submit_here(self, *words: str) -> str:
        return self.here("submit", *words).out.strip()

    def said(self, task: str, event: str) -> list[str]:
        """The causes of these events of a task."""
        return [each["cause"] for each in self.get(f"/v1/tasks/{task}/events") if each["event"] == event]

    def uploaded(self, task: str) -> list[str]:
        """What was sent to the node for it."""
        events = self.get(f"/v1/tasks/{task}/events")
        return [e["task"]["reason"] for e in events if (e["task"]["reason"] or "").startswith("uploaded")]


@pytest.fixture
def ann(lab, tmp_path):
    for node in lab.nodes.values():  # their containers are gone, and with them what keeps these
        node.sh("docker images --quiet 'agentless-files/*' | xargs --no-run-if-empty docker rmi --force")
    folder = tmp_path / "project"
    folder.mkdir()
    cli = Person(lab, folder)
    yield cli
    cli.close()


def write(folder, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_a_folder_runs_as_if_the_gpu_were_here(ann):
    """No flag beyond the command: log, exit code, and what it has made; a repeat sends what has changed."""
    noise = random.Random(1).randbytes(300_000).hex()
    write(ann.folder, train="echo training; cat in | wc -c; echo made > out; mkdir m; echo x > m/x; exit 7\n")
    write(ann.folder, data__noise=noise, junk="junk", **{".gitignore": "junk\n"})
    write(ann.folder, **{"in": "input"})
    ran = ann.here("run", "--", "sh", "train", code=7)
    assert ran.out == "training\n5\n"
    assert f" copied to {ann.folder}: 2 files, 7 B" in ran.err
    assert ((ann.folder / "out").read_text(), (ann.folder / "m" / "x").read_text()) == ("made\n", "x\n")
    (first,) = ann.json("ps", "--all")
    assert len(first["gpus"]) == 1
    write(ann.folder, train="ls; pwd; echo changed > out; rm in; cat data/noise > big\n")
    ran = ann.here("run", "--gpus", "0", "--", "sh", "train")
    assert ran.out.split() == ["data", "in", "m", "out", "train", "/workspace/project"]
    assert ((ann.folder / "out").read_text(), (ann.folder / "in").read_text()) == ("changed\n", "input")
    assert (ann.folder / "big").read_text() == noise
    last = ann.json("ps", "--all")[-1]
    assert (len(last["gpus"]), last["outputs"][0]["files"]) == (0, 2)
    sent = [re.fullmatch(r"uploaded (.*) to node1: (.*) sent", words) for words in ann.uploaded(first["id"])]
    again = [re.fullmatch(r"uploaded (.*) to node1: (.*) sent", words) for words in ann.uploaded(last["id"])]
    assert [match[1] for match in sent] == ["4 files, 586 KiB"]
    assert [match[1] for match in again] == ["3 files, 64 B"]
    assert float(again[0][2].split()[0]) < 1024
    assert again[0][2].endswith(" B")


@pytest.mark.slow
def test_a_task_has_its_files_as_they_were_at_the_submit_and_is_tried_with_them(ann):
    """Links, modes, an owner by number, several places; however often it is tried, and on whichever node."""
    write(ann.folder, code__main="echo one", config="c")
    (ann.folder / "code" / "main").chmod(0o750)
    (ann.folder / "code" / "link").symlink_to("main")
    (ann.folder / "code" / "empty").mkdir(mode=0o700)
    options = ("--user", "1234:55", "--upload", "code", "--upload", "config:/etc/deep/x.conf", "--retries", "1")
    script = "cd code; touch mine; ls -ln | awk '{print $1, $3, $4, $9 $10 $11}'; cat /etc/deep/x.conf; sh link; exit 1"
    task = ann.submit_here("node1", *options, "--backoff", "1s", "--in", "2s", "--", "sh", "-c", script)
    write(ann.folder, code__main="echo two", config="d")
    (ann.folder / "code" / "link").unlink()
    ann("wait", task, code=1)
    first, second = ann("logs", f"{task}-1").out, ann("logs", f"{task}-2").out
    assert first == second
    assert first.splitlines()[1:] == [
        "drwx------ 1234 55 empty",
        "lrwxrwxrwx 1234 55 link->main",
        "-rwxr-x--- 1234 55 main",
        "-rw-r--r-- 1234 55 mine",
        "cone",
    ]


@pytest.mark.slow
def test_what_a_failed_task_has_made_comes_back_beside_what_is_ones_own(ann):
    """Also of a sweep, each apart; what was changed here is not written over, and what an output left here is."""
    write(ann.folder, results__mine="mine", results__a="mine too")
    script = "mkdir results; echo new > results/a; echo $0 > results/b; ln -s /etc results/out; exit 3"
    task = ann.submit_here("node1", "--output", "results", "--output", "/nope", "--", "sh", "-c", script, "1")
    ended = ann.here("wait", task, code=3)
    assert "skipped: out (link to '/etc', outside the output)" in ended.err
    assert f"{task}  output /nope: no /nope in its container" in ended.err
    found = {path.name: path.read_text() for path in (ann.folder / "results").iterdir()}
    assert found == {"mine": "mine", "a": "mine too", "b": "1\n", f"a.{task}": "new\n"}
    task = ann.submit_here(
        "node1", "--wait", "--output", "results/b", "--", "sh", "-c", "mkdir results; echo 2 > results/b"
    )
    assert (ann.folder / "b").read_text() == "2\n"
    script = "mkdir results; echo $0 > results/x"
    ann.here("submit", "--wait", "--gpus", "0", "--output", "results", "--", "sh", "-c", script, "span:{1..2}")
    swept = {each["parameters"]["arg3"]: each["id"] for each in ann.json("ps", "--all")[-2:]}
    assert {n: (ann.folder / swept[n] / "results" / "x").read_text() for n in "12"} == {"1": "1\n", "2": "2\n"}


def forge(ann, node, task: str, local) -> None:
    """A container that says it is a task of this controller, which is to be brought back to somewhere else."""
    labels = inspect(node, task)["Config"]["Labels"]
    whole = json.loads(labels["agentless.spec"])
    whole["spec"]["outputs"] = [{"path": "/etc/passwd", "local": str(local), "changed": False}]
    labels |= {"agentless.task": "0forged0abc", "agentless.spec": json.dumps(whole)}
    words = " ".join(f"--label {shlex.quote(f'{key}={value}')}" for key, value in labels.items())
    node.sh(f"docker run --name forged {words} busybox sh -c 'echo bad > /etc/passwd'")


@pytest.mark.slow
def test_outputs_come_when_the_controller_died_and_the_node_was_away(ann, lab):
    """They wait there, in their container, and the controller's memory alone says what goes where."""
    node = lab.nodes["node1"]
    ann.write_inventory(inventory_of(lab) + "keep: {containers: 1s}\n")
    script = "until [ -e /go ]; do sleep .05; done; echo late > late"
    options = ("node1", "--workdir", "/w", "--output")
    task = ann.submit_here(*options, "late:came", "--", "sh", "-c", script)
    ann.kill_controller()
    node.sh(f"docker exec agentless-{task} touch /go; docker wait agentless-{task}")
    forge(ann, node, task, ann.folder / "bad")
    write(ann.folder, came="mine")
    ann("ps")
    until(lambda: ann.said(task, "brought"))
    assert (ann.folder / f"came.{task}").read_text() == "late\n"
    until(lambda: f"agentless-{task}" not in containers(node))
    (forged,) = [each for each in ann.json("ps", "--all") if each["foreign"]]
    assert forged["outputs"] == []
    second = ann.submit_here(*options, "late:deep/folder/", "--", "sh", "-c", script)
    node.stop_sshd()
    until(lambda: ann.node("node1")["state"] == "offline")
    node.sh(f"docker exec agentless-{second} touch /go; docker wait agentless-{second}")
    node.start_sshd()
    ann("doctor")
    assert f" copied to {ann.folder}/deep/folder/: 1 file, 5 B\n" in ann.here("wait", second).err
    assert (ann.folder / "deep" / "folder" / "late").read_text() == "late\n"
    assert not (ann.folder / "bad").exists()
    assert sorted(path.name for path in ann.folder.iterdir()) == ["came", f"came.{task}", "deep"]


BEFORE_THE_FIRST = "printf '%s;' {{ mark }}"
IN_THE_MIDDLE = "{{ docker }} cp -"


def hold(ann, go, at) -> None:
    """From now on an engine does not begin with this, when it is to take files, before there is `go`."""
    template = ann.config / "templates" / "docker-files-make.sh.j2"
    template.parent.mkdir()
    text = (template_dir() / "docker/files" / template.name).read_text()
    assert at in text
    template.write_text(text.replace(at, f"until [ -e {go} ]; do sleep .1; done; {at}", 1))


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(BEFORE_THE_FIRST, id="before the first byte", marks=pytest.mark.slow),
        pytest.param(IN_THE_MIDDLE, id="in the middle"),
    ],
)
@pytest.mark.slow
def test_a_launch_that_breaks_off_while_its_files_are_sent_runs_once_with_all_of_them(ann, lab, tmp_path, at):
    """The controller is killed then; nothing half is left."""
    node, go = lab.nodes["node1"], tmp_path / "go"
    noise = random.Random(2).randbytes(20_000_000)
    (ann.folder / "noise").write_bytes(noise)
    hold(ann, go, at)
    ann.settle()
    submitting = subprocess.Popen(
        ["agentless", "submit", "node1", "--upload", ".", "--", "md5sum", "noise"],
        env=ann.env, cwd=ann.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: "agentless-files-" in " ".join(containers(node)))
    ann.kill_controller()
    submitting.wait(60)
    go.touch()
    (task,) = [each["id"] for each in ann.json("ps")]
    ann("wait", task)
    assert ann("logs", task).out.split()[0] == hashlib.md5(noise).hexdigest()
    until(lambda: containers(node) == [f"agentless-{task}"])
    assert len(node.sh("docker images --quiet 'agentless-files/*'").stdout.split()) == 1


@pytest.mark.slow
def test_what_only_older_uploads_needed_goes(ann, lab):
    node = lab.nodes["node1"]
    write(ann.folder, first="first")
    ann.here("submit", "node1", "--upload", ".", "--wait", "--", "ls")
    (task,) = ann.json("ps", "--all")
    ann("rm", task["id"])
    (ann.folder / "first").unlink()
    write(ann.folder, code="c", data__noise="x" * 50_000)
    ann.here("submit", "node1", "--upload", ".", "--wait", "--", "ls")
    write(ann.folder, data__new="new")
    (ann.folder / "code").rename(ann.folder / "other")
    last = ann.submit_here("node1", "--upload", ".", "--", "sh", "-c", "ls; ls data; wc -c <data/noise")
    ann("wait", last)
    assert ann("logs", last).out.split() == ["data", "other", "new", "noise", "50000"]
    assert ann.uploaded(last)[0].startswith("uploaded 2 files, 4 B to node1")
    # Older ones are kept only by the containers that were made of them.
    assert len(node.sh("docker images --quiet 'agentless-files/*'").stdout.split()) == 2
