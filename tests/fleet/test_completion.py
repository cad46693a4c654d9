"""Tab in bash, zsh and fish: installed as a user does, in a terminal, while a controller runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless import Cluster
from agentless.cli.tab import joined
from agentless.demo.fleet import NodePlan
from tests.fleet.inhabited import inhabited
from tests.fleet.world import World
from tests.tmux import Tmux


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("completion"), [NodePlan("alpha", 2), NodePlan("beta", 1)]) as world:
        yield world


@pytest.fixture(scope="module")
def task(world: World) -> str:
    return Cluster().submit("sleep", "600", target="alpha::1", name="training").id


@pytest.fixture(scope="module")
def workflow(world: World) -> str:
    jobs = {"prepare": {"command": "sleep 600"}, "evaluate": {"command": "true", "requires": "prepare"}}
    return Cluster().submit_workflow({"name": "nightly", "jobs": jobs}).id


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Tmux]:
    """A shell whose completion was installed by `--install-completion`, and started again."""
    name = request.param
    if missing := [program for program in (name, "tmux") if shutil.which(program) is None]:
        pytest.skip(f"no {' and no '.join(missing)} here (Debian: apt-get install {' '.join(missing)})")
    program = tmp_path / "bin" / "agentless"
    program.parent.mkdir()
    config = os.environ["XDG_CONFIG_HOME"]
    program.write_text(f'#!/bin/sh\nXDG_CONFIG_HOME={config} exec {sys.executable} -m agentless "$@"\n')
    program.chmod(0o755)
    fish = tmp_path / ".config" / "fish" / "config.fish"
    fish.parent.mkdir(parents=True)
    fish.write_text("set fish_greeting\nfunction fish_prompt; echo 'go$ '; end\n")
    (tmp_path / ".zshrc").write_text("PROMPT='go$ '\n")
    (tmp_path / ".bashrc").write_text("PS1='go$ '\n")
    env = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.getcwd(),
    }
    with Tmux(tmp_path, env) as tmux:
        # Not typed into it: a shell that ends may throw away what is typed ahead.
        tmux.press(f"{name} -c 'agentless --install-completion; true'", "Enter")
        tmux.see(f"{name} completion installed")
        tmux.press(f"clear; echo again; {name}", "Enter")
        tmux.see("again\ngo$")
        yield tmux


@pytest.mark.slow
def test_tab_completes_commands_options_tasks_nodes_and_gpus(shell: Tmux, task: str, workflow: str) -> None:
    for typed, completed in (
        ("agentless unres", "agentless unreserve"),
        ("agentless ps --wat", "agentless ps --watch"),
        ("agentless slurm con", "agentless slurm config"),
        ("agentless slurm config --che", "agentless slurm config --check"),
        ("agentless logs trai", "agentless logs training"),
        ("agentless attach trai", "agentless attach training"),
        (f"agentless show {task[:-3]}", f"agentless show {task}"),
        ("agentless nodes drain be", "agentless nodes drain beta"),
        ("agentless submit alpha::", "agentless submit alpha::0"),
        ("agentless submit --node be", "agentless submit --node beta"),
        (f"agentless submit --after {workflow},trai", f"agentless submit --after {workflow},training"),
        ("agentless explain 1x --after training:fa", "agentless explain 1x --after training:failed"),
        ("agentless workflow show nigh", "agentless workflow show nightly"),
        (f"agentless workflow stop {workflow[:-2]}", f"agentless workflow stop {workflow}"),
        ("agentless workflow logs nightly ev", "agentless workflow logs nightly evaluate"),
        ("agentless workflow retry nightly --from pre", "agentless workflow retry nightly --from prepare"),
    ):
        shell.press(typed, "Tab")
        shell.see(completed)
        shell.press("C-u")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["submit", "n1", "::", "0"], ["submit", "n1::0"]),
        (["submit", "n1", "::"], ["submit", "n1::"]),
        (["submit", "n1::0"], ["submit", "n1::0"]),
        (["submit", "--node", "=", "n1", "--gpus"], ["submit", "--node=n1", "--gpus"]),
        (["env", "push", "torch", ":", "2", "n1"], ["env", "push", "torch:2", "n1"]),
    ],
)
def test_what_bash_takes_apart_is_one_word(parts: list[str], words: list[str]) -> None:
    assert joined(parts) == words
