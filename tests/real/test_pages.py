"""Pages about images and volumes do what they say, typed from top to bottom on real engines."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from tests.pages import ROOT
from tests.reader import CTRL_C, ON_ENGINES, Help, Reader, steps
from tests.real.cli import Cli, inventory_of
from tests.real.jupyter import PIP

IMAGE = "python:3.12-slim"
PYTHON = """#!/bin/sh
echo "epoch 1: loss 0.71"
mkdir -p results
echo 0.71 >results/loss
echo weights >model.pt
"""
"""What `python` is in it."""

MAKE_PIP = f"cat >/bin/pip <<'END_OF_PIP'\n{PIP}END_OF_PIP\nchmod +x /bin/pip"
"""Makes a `pip` that installs a stand-in for Jupyter."""

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
    "docs/how-to/work/forward.md": {"agentless forward*": Help(keys=[("Ctrl-C ends it", CTRL_C)])},
    "docs/how-to/work/interactive.md": {"agentless code*": Help(code=3, keys=[("[y/N]: ", "y\n")])},
    "docs/how-to/work/notebook.md": {
        "agentless env exec*": Help(first=[f"agentless env exec jupyter -- sh -c {shlex.quote(MAKE_PIP)}"]),
        "agentless notebook --container jupyter": Help(keys=[("asks whether", CTRL_C), ("[y/N]: ", "n\n")]),
        "agentless notebook notebook": Help(keys=[("asks whether", CTRL_C), ("[y/N]: ", "n\n")]),
        "agentless notebook dev": Help(keys=[("asks whether", CTRL_C), ("[y/N]: ", "y\n")]),
    },
    "docs/how-to/work/ssh.md": {
        "agentless ssh dev": Help(keys=[("# ", "exit\n")]),
        "agentless ssh dev -A*": Help(keys=[("# ", "exit\n")]),
        "agentless ssh-config --install": Help(keys=[("[y/N]: ", "y\n")]),
    },
    "docs/how-to/work/vps.md": {
        "agentless vps create lab*": Help(first=["ssh-keygen -q -t ed25519 -N '' -f alice"]),
        "agentless vps show lab*": Help(),
    },
    "docs/how-to/run/folder.md": {"agentless run*": Help(first=["touch train.py"])},
}
"""By page and command."""

ENVS: dict[str, Help] = {
    "agentless env push*": Help(
        first=[
            "agentless env create torch --from python:3.12-slim --on node1",
            "agentless env save torch",
            "agentless env exec torch -- touch new",
            "agentless env save torch",
        ]
    ),
    "agentless env build*": Help(first=["printf 'FROM python:3.12-slim\nENV DONE=1\n' >Dockerfile"]),
    "agentless env exec*": Help(first=["agentless env exec torch -- cp /bin/python /bin/pip"]),
    "agentless env import torch.tar.zst": Help(first=["agentless env rm torch --yes"]),
    "agentless env rm --build-container*": Help(
        first=["agentless env create torch --from python:3.12-slim --on node1"], keys=[("[y/N]: ", "y\n")]
    ),
    "agentless env rm*": Help(keys=[("[y/N]: ", "y\n")]),
}
"""For the commands of the table."""


@pytest.fixture(scope="module")
def images(lab):
    """The nodes' images beside that of the lab, the same for all pages."""
    write = "cat >/bin/python; chmod +x /bin/python"
    for node in lab.nodes.values():
        node.sh(
            f"docker run --name python --interactive busybox sh -c '{write}' <<'END'\n{PYTHON}END\n"
            f"docker commit python {IMAGE}; docker tag {IMAGE} pytorch/pytorch; docker rm python"
        )
    yield
    for node in lab.nodes.values():
        node.sh(f"docker rmi --force {IMAGE} pytorch/pytorch")


@pytest.fixture
def reader(lab, images):
    cli = Cli(lab, "reader", inventory_of(lab, f"image: '{IMAGE}'")).settle()
    folder = lab.home / "project"
    folder.mkdir()
    meant = {
        "/scratch/me": f"{folder}/scratch/me",
        "FILE NAME": "saved.tar other",
        "docker container": f"DOCKER_HOST=unix://{lab.nodes['node1'].docker_socket} docker container",
    }
    yield Reader(cli.env, folder, meant)
    shutil.rmtree(folder)
    cli("ssh-config", "--remove", code=None)  # the home is that of all tests
    lab.reset()
    for node in lab.nodes.values():
        for image in node.ask_docker("GET", "/images/json"):
            for name in image["RepoTags"] or [image["Id"]]:
                if "busybox" not in name and name not in (IMAGE, "pytorch/pytorch:latest"):
                    node.ask_docker("DELETE", f"/images/{name}?force=1")
    cli.close()


SLOW = {
    f"docs/how-to/{name}.md" for name in ("work/notebook", "work/vps", "nodes/doctor", "files/copy", "files/upload")
}
"""Their commands are tests of their own: in files with such names here, and in `test_workspace.py`."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in sorted(ON_ENGINES)]
)
def test_a_page_can_be_typed_from_top_to_bottom(name, reader):
    if wrong := reader.read((ROOT / name).read_text(), HELP.get(name, {}), ()):
        pytest.fail(f"{name}\n{wrong}", pytrace=False)


@pytest.mark.slow
def test_the_commands_of_the_table_of_envs_can_be_typed(reader, lab):
    lab.nodes["node1"].sh(f"docker save --output {lab.home}/project/saved.tar busybox").check_returncode()
    page = (ROOT / "docs/how-to/files/env.md").read_text()
    table = "\n".join(re.findall(r"^\| `(agentless .*?)`", page, re.MULTILINE))
    assert reader.read(f"```sh\n{table}\n```", ENVS, ()) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("README.md", "--image pytorch"),
        ("docs/uninstall.md", "docker container prune"),
        ("docs/uninstall.md", "docker images"),
    ],
)
@pytest.mark.slow
def test_a_command_can_be_typed(name, words, reader):
    command = next(step.command for step in steps((ROOT / name).read_text()) if words in step.command)
    helps = {"docker*": Help(keys=[("[y/N] ", "y\n")])}
    assert reader.read(f"```sh\n{command}\n```", helps if "prune" in words else {}, ()) == ""
