"""The files of `docs/examples/` do what they say, on simulated nodes."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless import paths
from agentless.demo.fleet import demo_plans
from tests import ready
from tests.fleet.inhabited import inhabited
from tests.fleet.world import World
from tests.real.cli import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = Path(sys.executable).parent
TRAINING = """echo step 1
awk -v lr="$2" -v seed="$4" 'BEGIN { print "loss " lr * 10 + seed / 10 }'
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("fleet"), demo_plans((8, 4, 1))) as world:
        yield world


@pytest.fixture
def training(world: World, tmp_path: Path) -> tuple[str, str]:
    """A command that takes `--lr LR --seed SEED`, and is best with the smallest values."""
    script = tmp_path / "train.sh"
    script.write_text(TRAINING)
    return "sh", str(script)


def run(*command: str | Path) -> str:
    """What a program prints that finds `agentless` on its PATH."""
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    return subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True, timeout=120
    ).stdout


@pytest.mark.slow
def test_the_sweep_in_shell_finds_the_best_run(training):
    assert run("sh", EXAMPLES / "sweep.sh", *training) == "lr=0.01 seed=1 | loss 0.2\n"


def test_the_sweep_in_python_finds_the_best_run(training):
    *runs, best = run(sys.executable, EXAMPLES / "best_of_sweep.py", *training).splitlines()
    assert [line.split("  ")[2:] for line in runs] == [
        ["completed", f"loss {loss}"] for loss in ("1.1", "1.2", "0.2", "0.3")
    ]
    assert best == "best: {'lr': '0.01', 'seed': '1'}"


def test_the_template_adds_one_argument_to_the_packaged_one(world):
    packaged = (ROOT / "templates/docker/launch/docker-run.j2").read_text().splitlines()
    example = (EXAMPLES / "templates/docker-run.j2").read_text().splitlines()
    added = [line for line in example if line not in packaged]
    assert [line for line in example if line not in added] == packaged
    assert added[1:] == ["--log-driver local"]

    place = paths.config_dir() / "templates"
    place.mkdir()
    shutil.copy(EXAMPLES / "templates/docker-run.j2", place)
    try:
        assert (
            " --log-driver local --stop-timeout 10 "
            in ready.agentless("submit", "node1::7", "--dry-run", "--", "true").stdout
        )
    finally:
        shutil.rmtree(place)


@pytest.mark.slow
def test_the_unit_runs_a_controller(world, tmp_path):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(EXAMPLES / "agentless.service")
    assert unit["Install"]["WantedBy"] == "default.target"

    program, inventory = tmp_path / ".local/bin/agentless", tmp_path / ".config/agentless/inventory.yaml"
    program.parent.mkdir(parents=True)
    program.symlink_to(PROGRAMS / "agentless")
    inventory.parent.mkdir(parents=True)
    shutil.copy(world.fleet.inventory, inventory)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "AGENTLESS_"))}
    environment["HOME"] = str(tmp_path)

    def serves() -> bool:
        asked = ready.agentless("controller", "status", "--json", env=environment)
        return asked.returncode == 0 and json.loads(asked.stdout)["inventory"] == str(inventory)

    with subprocess.Popen(
        unit["Service"]["ExecStart"].replace("%h", str(tmp_path)).split(), env=environment
    ) as service:
        until(serves)
        service.send_signal(signal.SIGTERM)
        assert service.wait() == 0
