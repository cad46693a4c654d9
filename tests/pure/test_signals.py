"""What we start begins with default signals, whatever we were started with ourselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.background import IGNORED, ignoring

SHOW = "grep -E 'Sig(Ign|Blk)' /proc/self/status"
NONE = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux shows them")


THREADS = 3 << 31
"""Signals 32 and 33 are the C library's own: no program can set them, and some come with them blocked."""


def signals(status):
    lines = (line.split(":\t") for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn")))
    return "".join(f"{name}:\t{int(mask, 16) & ~THREADS:016x}\n" for name, mask in lines)


def shells_of(pid):
    """What /proc says of each `sh` that this process has started; one that has not begun still is another program."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        status for child in children if (status := Path(f"/proc/{child}/status").read_text()).startswith("Name:\tsh")
    ]


def test_a_program_started_so_ignores_them(tmp_path):
    """What the other tests here rely on."""
    done = subprocess.run(ignoring(["sh", "-c", SHOW]), capture_output=True, text=True, check=True)
    ignored = int(done.stdout.split()[3], 16)
    assert all(ignored >> (number - 1) & 1 for number in IGNORED)


@pytest.mark.parametrize("parallel", ["-j1", "-j2"])
def test_commands_of_span_begin_with_default_signals(tmp_path, parallel):
    command = ignoring([sys.executable, "-m", "agentless", "span", parallel, "--", "sh", "-c", SHOW, "span:[a]"])
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    assert signals(out.replace("1/1 arg3=a | ", "")) == NONE


def test_a_span_that_shall_ignore_signals_still_does(tmp_path):
    os.mkfifo(tmp_path / "asked")
    command = ignoring(
        [sys.executable, "-m", "agentless", "span", "--", "sh", "-c", "echo $PPID; cat asked; :", "span:[a]"]
    )
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        for number in IGNORED[:3]:
            process.send_signal(number)
        (tmp_path / "asked").write_text("went on\n")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "went on\n"), err


def test_programs_of_the_controller_begin_with_default_signals(tmp_path):
    """The shells of a node that is this machine are its children."""
    (tmp_path / "inventory.yaml").write_text("version: 1\nnodes: {here: {connection: local, docker: no-docker}}\n")
    ours, theirs = os.pipe()
    words = [sys.executable, "-m", "agentless.controller", *map(str, (tmp_path, tmp_path / "inventory.yaml", theirs))]
    with (
        subprocess.Popen(ignoring(words), pass_fds=[theirs], start_new_session=True) as process,
        os.fdopen(ours) as said,
    ):
        try:
            os.close(theirs)
            assert said.read() == "ready"
            while not (shells := shells_of(process.pid)):
                assert process.poll() is None
                time.sleep(0.02)
            assert {signals(status) for status in shells} == {NONE}
        finally:
            process.kill()
