"""What `make test` leaves behind when it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.background import ignoring

STEPS = """
import sys
from tests import run
sleeps = ("sh", "-c", "echo $$; exec sleep 600")
run.static = lambda: [run.Step("a ring", sleeps, beside=beside) for beside in (True, False)]
sys.argv.append("--static")
sys.exit(run.main())
"""


@pytest.mark.parametrize("start", [list, ignoring], ids=["from a terminal", "in the background"])
def test_what_it_has_started_ends_with_it(start):
    """The pipe is at its end when nobody has it any more."""
    with subprocess.Popen(start([sys.executable, "-c", STEPS]), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("--- a ring")
        os.kill(int(process.stdout.readline()), 0)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert (process.returncode, "all checks" in rest) == (143, False)
