"""What doctor sees of the folders that an inventory names, by the script that a node runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentless.model.command import join_sections, split_sections
from agentless.model.nodes.checkup import Folder
from agentless.remote import checkup
from tests.engines import RENDERER
from tests.pure.shells import SHELLS

OTHERS = [shell for shell in SHELLS if shell != ["busybox", "sh"]]
"""BusyBox calls programs of its own, not ours."""
HANGING = "exec sleep 60"
GONE = 'echo "stat: cannot stat: Transport endpoint is not connected" >&2; exit 1'


def problem(shell: list[str], tmp_path: Path, folder: Folder, **stand_ins: str) -> str:
    """What is wrong with this folder, where these programs of the node do what is given."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in stand_ins.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    script = join_sections(checkup.sections(RENDERER, [folder]))
    said = subprocess.run(
        shell,
        input=script.encode(),
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        timeout=30,
        check=True,
    ).stdout
    machine = checkup.parse(split_sections(said), [folder], 0.0, 0.0)
    assert machine
    return machine.folders[0].problem


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("writable", [True, False])
def test_a_folder_is_there_or_missing(shell: list[str], tmp_path: Path, writable: bool) -> None:
    (tmp_path / "there").mkdir()
    assert problem(shell, tmp_path, Folder("shared_dir", f"{tmp_path}/there", writable=writable)) == ""
    assert [*(tmp_path / "there").iterdir()] == []
    (tmp_path / "bin").rmdir()
    assert problem(shell, tmp_path, Folder("shared_dir", f"{tmp_path}/gone", writable=writable)) == "missing"


@pytest.mark.parametrize("shell", OTHERS, ids=" ".join)
def test_a_mount_without_its_server_is_not_taken_for_a_missing_folder(shell: list[str], tmp_path: Path) -> None:
    """To make the folder would be of no use."""
    assert problem(shell, tmp_path, Folder("shared_dir", str(tmp_path)), stat=GONE) == "hangs"


@pytest.mark.slow
@pytest.mark.parametrize("program", ["stat", "mktemp"])
@pytest.mark.parametrize("shell", OTHERS, ids=" ".join)
def test_a_mount_that_never_answers_is_told_and_the_rest_is_answered(
    shell: list[str], tmp_path: Path, program: str
) -> None:
    assert problem(shell, tmp_path, Folder("shared_dir", str(tmp_path)), **{program: HANGING}) == "hangs"
