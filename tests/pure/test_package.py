"""What is installed is whole."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_every_template_and_the_stand_ins(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    wanted = {f"agentless/{path.relative_to(ROOT)}" for path in (ROOT / "templates").rglob("*.j2")}
    wanted |= {f"agentless/demo/bin/{path.name}" for path in (ROOT / "agentless/demo/bin").iterdir()}
    wanted |= {f"agentless/web/page/{path.name}" for path in (ROOT / "agentless/web/page").iterdir()}
    assert wanted - names == set()
