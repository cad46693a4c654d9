"""Pages about images and volumes do what they say, typed from top to bottom on real engines."""

from __future__ import annotations

import shutil

import pytest

from tests.pages import ROOT
from tests.reader import ON_ENGINES, Help, Reader
from tests.real.cli import Cli, inventory_of

IMAGE = "python:3.12-slim"
PYTHON = """#!/bin/sh
echo "epoch 1: loss 0.71"
mkdir -p results
echo 0.71 >results/loss
echo weights >model.pt
"""
"""What `python` is in it."""

HELP: dict[str, dict[str, Help]] = {
    "docs/how-to/files/copy.md": {
        "agentless cp data src*": Help(first=["mkdir -p data src scratch/me"]),
        "agentless cp node1:*": Help(
            first=["mkdir -p runs/last", "touch runs/last/model.pt", "agentless cp runs node1:"]
        ),
        "agentless cp TASK:*": Help(first=["agentless submit node1 --wait -- mkdir /out"]),
    },
    "docs/how-to/files/env.md": {"agentless env shell torch": Help(keys=[("# ", "touch new; exit\n")])},
    "docs/how-to/files/upload.md": {
        "agentless submit 1x --upload . --upload*": Help(
            first=["mkdir -p ~/configs", "touch train.py ~/configs/a.yaml"]
        ),
    },
    "docs/how-to/files/volumes.md": {
        "agentless rm*": Help(first=["agentless wait TASK"], keys=[("[y/N]: ", "y\n")]),
        "agentless volume rm*": Help(keys=[("[y/N]: ", "y\n")]),
    },
    "docs/how-to/run/folder.md": {"agentless run*": Help(first=["touch train.py"])},
}
"""By page and command."""


@pytest.fixture
def reader(lab):
    for node in lab.nodes.values():
        write = "cat >/bin/python; chmod +x /bin/python"
        node.sh(f"docker run --name python --interactive busybox sh -c '{write}' <<'END'\n{PYTHON}END\n")
        node.sh(f"docker commit python {IMAGE}; docker rm python")
    cli = Cli(lab, "reader", inventory_of(lab, f"image: '{IMAGE}'")).settle()
    folder = lab.home / "project"
    folder.mkdir()
    yield Reader(cli.env, folder, {"/scratch/me": f"{folder}/scratch/me"})
    shutil.rmtree(folder)
    lab.reset()
    for node in lab.nodes.values():
        node.sh("docker images --format '{{.Repository}}:{{.Tag}}' | grep -v busybox | xargs docker rmi --force")
    cli.close()


@pytest.mark.parametrize("name", sorted(ON_ENGINES))
def test_a_page_can_be_typed_from_top_to_bottom(name, reader):
    if wrong := reader.read((ROOT / name).read_text(), HELP.get(name, {}), ()):
        pytest.fail(f"{name}\n{wrong}", pytrace=False)
