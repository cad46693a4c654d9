"""`agentless demo`, the first thing that most people type."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_demo_walks_to_its_end_and_each_step_ends_as_it_says(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "agentless", "demo"],
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stdout + done.stderr
    assert "That is the main job. Now your own machines: agentless init" in done.stdout
