"""The examples of docs/python.md do what the page says, and are typed."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentless.demo.fleet import demo_plans
from tests.fleet.inhabited import inhabited

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"^# -> (.*\n)", re.MULTILINE)


def test_each_block_prints_what_it_says(tmp_path, capsys):
    names: dict[str, object] = {}
    with inhabited(tmp_path, demo_plans((8, 4, 1))):
        for block in BLOCKS:
            assert PRINTED.search(block), f"this shows nothing:\n{block}"
            exec(compile(block, str(PAGE), "exec"), names)
            want, got = "".join(PRINTED.findall(block)), capsys.readouterr().out
            assert doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), f"{want}\nis not\n{got}"


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the type checker says of the page and of a program with a wrong option, in one run."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "page.py").write_text("\n".join(BLOCKS))
    (folder / "wrong.py").write_text("import agentless\nagentless.Cluster().submit('true', gpu=1)\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "page.py", "wrong.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_page_is_typed(complaints):
    assert [line for line in complaints if not line.startswith(("wrong.py:", "Found "))] == []


def test_a_wrong_option_is_found_by_the_type_checker(complaints):
    assert any('Unexpected keyword argument "gpu"' in line for line in complaints if line.startswith("wrong.py:2:"))
