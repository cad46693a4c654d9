"""What is installed is whole, and a command loads no more than it needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("asyncio", "asyncssh", "paramiko", "fastapi", "pydantic", "textual", "rich", "jinja2", "http.client", "yaml")


def test_the_wheel_has_every_template_and_the_stand_ins(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    wanted = {f"agentless/templates/{path.name}" for path in (ROOT / "templates").iterdir()}
    wanted |= {f"agentless/demo/bin/{path.name}" for path in (ROOT / "agentless/demo/bin").iterdir()}
    assert wanted - names == set()


@pytest.mark.parametrize("verb", ["ps", "submit", "logs", "gpus", "stop", "controller"])
def test_a_verb_loads_neither_the_controller_nor_anything_heavy(verb):
    program = (
        "import sys; from agentless.cli.app import make; make([sys.argv[1]]); "
        "print(*[name for name in sys.modules if name.startswith('agentless.controller') or name in sys.argv[2:]])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, verb, *HEAVY], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.split() == []
