"""Workflows whose state was lost, on real nodes, where somebody else writes labels, too."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace

import pytest

from agentless.rules.workflows.carried import HEAD, JOBS, digest_of_jobs, pack, parse_head, sign, unpack
from agentless.stores.workflow_proof import WorkflowProof
from tests.real.cli import Cli, containers, inspect, is_alive, until

TEXT = """\
name: nightly
defaults: {image: busybox, stop_grace: 0}
jobs:
  prepare: {command: sleep 600, node: node1}
  train: {command: echo trained, requires: [{prepare: ended}], node: node2}
  report: {command: echo reported, requires: train}
"""


@pytest.fixture
def ann(lab):
    cli = Cli(lab, "ann")
    yield cli.settle()
    cli.close()


def begin(cli, tmp_path):
    """Run it; its id, when the first job runs."""
    path = tmp_path / "nightly.yaml"
    path.write_text(TEXT)
    workflow = cli("workflow", "run", str(path)).out.strip()
    until(lambda: cli.task(workflow)["state"] == "running")
    return workflow


def lose(cli, *, key=False):
    """The state folder is lost, and maybe the key with it."""
    cli("controller", "stop")
    shutil.rmtree(cli.state)
    if key:
        shutil.rmtree(cli.config / "workflows")


def states(cli, workflow):
    return {job["job"]: job["task"]["state"] for job in cli.get(f"/v1/workflows/{workflow}")["jobs"]}


def ran(lab):
    return sum(len(containers(node)) for node in lab.nodes.values())


def by_hand(node, name, labels, *command):
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    done = node.sh(shlex.join(["docker", "run", "--detach", "--name", name, *words, "busybox", *command]))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_with_the_key_a_workflow_goes_on_by_itself(ann, lab, tmp_path):
    workflow = begin(ann, tmp_path)
    lose(ann)
    said = ann("recover", "--yes").err
    assert "will go on: train, report" in said
    assert states(ann, workflow) == {"prepare": "running", "train": "blocked", "report": "blocked"}
    ann("kill", workflow)
    ann("wait", "--batch", workflow, code=None)
    assert states(ann, workflow) == {"prepare": "killed", "train": "completed", "report": "completed"}
    assert ran(lab) == 3


@pytest.mark.slow
def test_without_the_key_a_person_is_shown_what_would_run_and_exactly_that_runs(ann, lab, tmp_path):
    workflow = begin(ann, tmp_path)
    lose(ann, key=True)
    said = ann("recover", "--yes").err
    assert "not started without you: train, report (not signed by this controller)" in said
    assert states(ann, workflow) == {"prepare": "running"}
    asked = ann("recover", "--go-on", "nightly", code=3).err
    assert "NOT signed by this controller, digest" in asked
    assert "- echo\n" in asked
    assert "- trained\n" in asked
    (digest,) = re.findall(r"digest ([0-9a-f]{64})", asked)
    wrong = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    assert "No workflow" in ann("recover", "--yes", "--go-on", f"{workflow}@{wrong}", code=2).err
    assert "use at least 40" in ann("recover", "--yes", "--go-on", f"{workflow}@{digest[:12]}", code=2).err
    assert states(ann, workflow) == {"prepare": "running"}
    assert "2 jobs will run" in ann("recover", "--yes", "--go-on", f"{workflow}@{digest}").err
    assert states(ann, workflow) == {"prepare": "running", "train": "blocked", "report": "blocked"}
    ann("kill", workflow)
    ann("wait", "--batch", workflow, code=None)
    assert (states(ann, workflow)["report"], ran(lab)) == ("completed", 3)


def forge(labels, command):
    """The labels of a container with other jobs in them, as somebody without the key can write them."""
    jobs, head = unpack(labels[JOBS]), parse_head(labels[HEAD])
    label = pack(replace(jobs, jobs={key: replace(spec, command=command) for key, spec in jobs.jobs.items()}))
    return labels | {JOBS: label, HEAD: sign(b"evil" * 8, replace(head, jobs=digest_of_jobs(label)), labels, "node1")}


@pytest.mark.slow
@pytest.mark.parametrize("key", [False, True])
def test_forged_labels_start_nothing(ann, lab, node, tmp_path, key):
    """Neither beside those that are signed, nor when no key is left that could tell them apart."""
    workflow = begin(ann, tmp_path)
    by_hand(node, "evil", forge(inspect(node, workflow)["Config"]["Labels"], ("touch", "/evil")), "sleep", "600")
    lose(ann, key=key)
    ann("recover", "--yes", workflow)
    if key:
        assert "matches 2 workflows" in ann("recover", "--yes", "--go-on", "nightly", code=2).err
        assert states(ann, workflow) == {"prepare": "running"}
    else:
        assert states(ann, workflow) == {"prepare": "running", "train": "blocked", "report": "blocked"}
        commands = [job["task"]["command"] for job in ann.get(f"/v1/workflows/{workflow}")["jobs"]]
        assert commands == [["sleep", "600"], ["echo", "trained"], ["echo", "reported"]]


@pytest.mark.slow
def test_labels_of_what_has_ended_start_nothing_though_they_are_signed(ann, lab, node, tmp_path):
    """The first job ended and the next ones ran. Then somebody removes these, and starts the first one again."""
    workflow = begin(ann, tmp_path)
    labels = inspect(node, workflow)["Config"]["Labels"]
    ann("kill", workflow)
    ann("wait", "--batch", workflow, code=None)
    for each in lab.nodes.values():
        for name in containers(each):
            if name != f"agentless-{workflow}":
                each.sh(f"docker rm --force {name}")
    ann("controller", "stop")
    node.sh(f"docker start agentless-{workflow}")
    lose(ann)
    said = ann("recover", "--yes").err
    assert "not started without you: train" in said
    assert states(ann, workflow) == {"prepare": "running"}
    ann("kill", workflow)

    lose(ann)
    node.sh(f"docker rm --force agentless-{workflow}")
    key = WorkflowProof(ann.config / "workflows", ann.state).key()
    earlier = replace(parse_head(labels[HEAD]), at=parse_head(labels[HEAD]).at - 100)
    labels[HEAD] = sign(key, earlier, labels, "node1")  # as if it had been launched earlier: nobody sleeps
    by_hand(node, f"agentless-{workflow}", labels, "sleep", "600")
    assert "not started without you: train" in ann("recover", "--yes").err
    assert states(ann, workflow) == {"prepare": "running"}
    assert ran(lab) == 1


def test_a_controller_whose_state_folder_was_replaced_starts_nothing_more(ann, lab, node, tmp_path):
    """The job that the others wait for ends before the controller's next look at the folder."""
    workflow, pid = begin(ann, tmp_path), ann.pid
    ann.state.rename(ann.state.with_name("gone"))
    ann.state.mkdir(mode=0o700)
    node.sh(f"docker kill agentless-{workflow}")
    until(lambda: not is_alive(pid))
    assert ran(lab) == 1
    assert not (ann.state / "state.json").exists()


@pytest.mark.slow
def test_the_next_controller_takes_over_though_the_last_one_was_not_ended(ann, lab, tmp_path):
    workflow, pid = begin(ann, tmp_path), ann.pid
    ann.state.rename(ann.state.with_name("gone"))
    ann("recover", "--yes")
    until(lambda: not is_alive(pid))
    assert ann.pid != pid
    assert "was removed or replaced" in (ann.state / "controller.log").read_text()
    ann("kill", workflow)
    ann("wait", "--batch", workflow, code=None)
    assert states(ann, workflow) == {"prepare": "killed", "train": "completed", "report": "completed"}
    assert ran(lab) == 3


HANDED_ON = """\
defaults: {image: busybox, stop_grace: 0}
jobs:
  made: {command: [sh, -c, 'echo made > /made'], artifacts: [/made], node: node1}
  train:
    command: [sh, -c, 'while ! [ -e /go ]; do sleep 0.1; done; echo model > /model']
    artifacts: [/model]
    node: node1
  report: {command: [cat, /artifacts/made/made, /artifacts/train/model], requires: [made, train], node: node2}
"""


def test_artifacts_are_fetched_again_after_the_state_was_lost(ann, lab, node, tmp_path):
    """Of a job that had ended before, and of one that still ran."""
    (tmp_path / "handed.yaml").write_text(HANDED_ON)
    workflow = ann("workflow", "run", str(tmp_path / "handed.yaml")).out.strip()
    until(lambda: states(ann, workflow)["train"] == "running" and ann.task(workflow)["outputs"][0]["state"] == "here")
    (train,) = [job["task"]["id"] for job in ann.get(f"/v1/workflows/{workflow}")["jobs"] if job["job"] == "train"]
    lose(ann)
    assert "will go on: report" in ann("recover", "--yes").err
    node.sh(f"docker exec agentless-{train} touch /go")
    ann("wait", "--batch", workflow, code=None)
    assert states(ann, workflow) == {"made": "completed", "train": "completed", "report": "completed"}
    assert ann("workflow", "logs", workflow, "report").out == "report | made\nreport | model\n"


TWO_NODES = """\
defaults: {image: busybox, stop_grace: 0}
jobs:
  prepare: {command: sleep 600, node: node1}
  pair: {command: [sh, -c, 'echo $NODE_RANK > /rank'], nodes: 2, requires: [{prepare: ended}], artifacts: [/rank]}
  merge: {command: [cat, /artifacts/pair/rank], requires: pair}
"""


@pytest.mark.slow
def test_a_job_on_two_nodes_goes_on_with_what_waits_for_it(ann, lab, tmp_path):
    (tmp_path / "two.yaml").write_text(TWO_NODES)
    workflow = ann("workflow", "run", str(tmp_path / "two.yaml")).out.strip()
    until(lambda: ann.task(workflow)["state"] == "running")
    lose(ann)
    assert "will go on: pair (2 nodes), merge" in ann("recover", "--yes").err
    ann("kill", workflow)
    ann("wait", "--batch", workflow, code=None)
    assert states(ann, workflow) == {"prepare": "killed", "pair": "completed", "merge": "completed"}
    assert ann("workflow", "logs", workflow, "merge").out == "merge | 0\n"
    assert ran(lab) == 4
    said = ann("workflow", "list").out
    assert workflow in said
    assert "missing" not in said


@pytest.mark.slow
def test_a_gang_that_ran_is_taken_back_and_what_waits_for_it_goes_on(ann, lab, node, tmp_path):
    text = TWO_NODES.replace(
        "'echo $NODE_RANK > /rank'", "'while ! [ -e /go ]; do sleep 0.1; done; echo $NODE_RANK > /rank'"
    )
    (tmp_path / "two.yaml").write_text(text)
    workflow = ann("workflow", "run", str(tmp_path / "two.yaml")).out.strip()
    ann("kill", workflow)
    until(
        lambda: [job["task"]["state"] for job in ann.get(f"/v1/workflows/{workflow}")["jobs"]][1:3] == ["running"] * 2
    )
    lose(ann)
    assert "will go on: merge" in ann("recover", "--yes").err
    for each in lab.nodes.values():
        for name in containers(each):
            each.sh(f"docker exec {name} touch /go")
    ann("wait", "--batch", workflow, code=None)
    assert states(ann, workflow) == {"prepare": "failed", "pair": "completed", "merge": "completed"}
    assert ann("workflow", "logs", workflow, "merge").out == "merge | 0\n"
