"""Workflows whose state was lost, on real nodes, where somebody else writes labels, too."""

from __future__ import annotations

import shlex
import shutil

import pytest

from agentless.rules.workflows.carried import HEAD, JOBS
from tests.real.cli import Cli, containers, inspect, until

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
