"""The examples of docs/python.md do what the page says, and are typed."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

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


def test_the_page_is_typed(tmp_path):
    (tmp_path / "page.py").write_text("\n".join(BLOCKS))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_wrong_option_is_found_by_the_type_checker(tmp_path):
    (tmp_path / "page.py").write_text("import agentless\nagentless.Cluster().submit('true', gpu=1)\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 'Unexpected keyword argument "gpu"' in done.stdout
