"""The commands of the documentation do what the pages say, typed from top to bottom on simulated nodes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.client.client import Client
from agentless.demo.fleet import USER, demo_plans
from tests.fleet.inhabited import forget_tasks
from tests.fleet.world import World
from tests.pages import DOCS, ROOT
from tests.reader import CTRL_C, Help, Reader, steps

TRAINING = """#!/bin/sh
echo "epoch 1: loss 0.71"
echo "loss 0.5"
case "$*" in *"--lr 0.1 --seed 2"*) exit 1;; esac
"""
"""What `python` runs, on the nodes and here."""

PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "tutorial.md",
    *sorted(DOCS.glob("how-to/*/*.md")),
    *sorted(DOCS.glob("reference/*.md")),
    *(DOCS / f"{name}.md" for name in ("inventory", "performance", "reliability", "security", "upgrade", "uninstall")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if any(steps(page.read_text()))]

NOT_TYPED = {
    "make demo": "shown by test_demo.py",
}
"""Commands that no test can type, each with the reason."""

HELP: dict[str, dict[str, Help]] = {
    "docs/tutorial.md": {
        "agentless init": Help(first=["rm -r ~/.config/agentless"], keys=[("[y/N]", "y\n")]),
        "agentless dashboard": Help(keys=[("GPU", "q")]),
    },
}
"""By page, for the commands that begin so."""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A short folder: it has a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="agl-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def world(home: Path) -> Iterator[World]:
    with World(home / "fleet", demo_plans((8, 4, 1)), {}) as world:
        python = home / "fleet/python/python"
        python.parent.mkdir()
        python.write_text(TRAINING)
        python.chmod(0o755)
        yield world


@pytest.fixture(scope="module")
def env(home: Path, world: World) -> Iterator[dict[str, str]]:
    ssh = home / ".ssh/config"
    ssh.parent.mkdir()
    hosts = {name: node.port for name, node in world.nodes.items()} | {"old": 1}
    login = f"HostName 127.0.0.1\n  User {USER}\n  IdentityFile {world.fleet.identity}"
    ssh.write_text("".join(f"Host {name}\n  {login}\n  Port {port}\n" for name, port in hosts.items()))
    path = f"{home}/fleet/python:{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield {"HOME": str(home), "PATH": path, "TERM": "xterm", "SHELL": "/bin/bash", "AGENTLESS_PAGER": "cat"}
    for socket in home.rglob("controller.sock"):
        Client(socket.parent, None).post("/v1/controller/stop")


@pytest.fixture
def folder(home: Path, world: World, env: dict[str, str]) -> Iterator[Path]:
    """Where a page is read. It looks like the repository; the inventory has the nodes, and nothing else is left."""
    config, folder = home / ".config/agentless", home / "project"
    shutil.rmtree(config, ignore_errors=True)
    config.mkdir(parents=True)
    (config / "known_hosts").write_bytes(world.fleet.known_hosts.read_bytes())
    (config / "inventory.yaml").write_bytes(world.fleet.inventory.read_bytes())
    folder.mkdir()
    for name in ("templates", "examples"):
        (folder / name).symlink_to(ROOT / name)
    yield folder
    shutil.rmtree(folder)
    client = Client(home / ".local/state/agentless", None)
    if client.is_running():
        forget_tasks(client)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_can_be_typed_from_top_to_bottom(name, folder, env):
    reader, helps, wrong = Reader(env, folder), HELP.get(name, {}), []
    unused = set(helps)
    for step in steps((ROOT / name).read_text()):
        if step.command not in NOT_TYPED:
            fitting = [each for each in helps if step.command.startswith(each)]
            wrong.append(reader.take(step, helps[fitting[0]] if fitting else Help()))
            unused -= set(fitting)
    assert "\n".join(filter(None, wrong)) == ""
    assert not unused, "no command of the page needs this help"


def test_each_command_that_is_not_typed_is_in_the_documentation():
    assert NOT_TYPED.keys() <= {step.command for page in PAGES for step in steps(page.read_text())}
