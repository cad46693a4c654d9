"""`agentless demo`, the first thing that most people type."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.cli import until
from tests.tmux import Tmux

DEMO = [sys.executable, "-m", "agentless", "demo"]


def test_the_demo_walks_to_its_end_and_each_step_ends_as_it_says(tmp_path):
    done = subprocess.run(
        [*DEMO, "--nodes", "3"],
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stdout + done.stderr
    assert "Those are the basics. To use your own machines: agentless init" in done.stdout
    assert {"ann", "ben", "chloe", "dan"} <= set(re.findall(r"\w+", done.stdout))
    assert re.search(r"node1 +7 .* unhealthy .* uncorrected ECC errors", done.stdout)
    assert set(re.findall(r"^node\d+", done.stdout, re.MULTILINE)) == {"node1", "node2", "node3"}


@pytest.mark.slow
def test_nodes_and_controller_are_gone_when_it_is_ended_by_a_signal(tmp_path):
    home = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = [*DEMO, "--nodes", "1", "--keep"]
    with subprocess.Popen(words, env=home, stdin=-1, stdout=-1, text=True, bufsize=1) as demo:
        variables = re.findall(r"(\w+)=(\S+)", next(line for line in demo.stdout if "export" in line))
        asked = [sys.executable, "-m", "agentless", "nodes", "--json"]
        nodes = json.loads(subprocess.check_output(asked, env=home | dict(variables)))
        assert [(node["name"], node["cores"]) for node in nodes] == [("node1", 96)]
        at_once = [*DEMO[:-1], "submit", "2x", "--no-queue", "--", "true"]
        assert subprocess.run(at_once, env=home | dict(variables), check=False).returncode == 0, "GPUs are kept free"
        controller = json.loads(
            subprocess.check_output([*DEMO[:-1], "controller", "status", "--json"], env=home | dict(variables))
        )
        demo.terminate()
        assert demo.wait() == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("agentless-demo-*"))
    until(lambda: not Path("/proc", str(controller["pid"])).exists())


@pytest.mark.parametrize(
    ("stdin", "code", "said"), [("<&-", 2, "standard input is closed"), ("</dev/null", 0, "ready ")]
)
def test_nodes_without_an_input_end_in_a_sentence_or_at_once(tmp_path, stdin, code, said):
    words = shlex.join([sys.executable, "-m", "agentless.demo", str(tmp_path / "fleet"), "--nodes", "1"])
    done = subprocess.run(
        ["sh", "-c", f"{words} {stdin}"], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")
def test_on_a_terminal_it_ends_by_offering_the_dashboard(tmp_path):
    with Tmux(tmp_path, {"HOME": str(tmp_path)}) as tmux:
        tmux.agentless("demo")
        tmux.see("Press Enter for the dashboard")
        tmux.press("Enter")
        tmux.see("node1 online", "node2 online", "node3 online", "node4 online", "ann pretrai", "needs 8x")
        tmux.press("q")
        tmux.see("ready$")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")
def test_the_dashboard_is_over_a_cluster_that_lives_and_has_lived(tmp_path):
    with Tmux(tmp_path, {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}, 120, 40) as tmux:
        tmux.agentless("demo", "--nodes", "2", "--dashboard")
        tmux.see("node1 online", "node2 online", "ann pretrain-llama", "finetune-vit", "2 uncorrected ECC", "needs 8x")
        tmux.see("-60m", "⣿")
        tmux.press("q")
        until(lambda: not list(tmp_path.glob("agentless-demo-*")))


def test_a_dashboard_without_a_terminal_is_refused_in_a_sentence():
    done = subprocess.run([*DEMO, "--dashboard"], stdin=-3, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agentless: --dashboard needs a terminal; without it, the demo writes to a pipe, too\n"


@pytest.mark.slow
def test_nodes_that_are_kept_are_unplugged_and_plugged_in_again_by_a_line(tmp_path):
    home = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen([*DEMO, "--keep"], env=home, stdin=-1, stdout=-1, stderr=-1, text=True, bufsize=1) as demo:
        variables = re.findall(r"(\w+)=(\S+)", next(line for line in demo.stdout if "export" in line))

        def becomes(state: str) -> Callable[[], bool]:
            asked = [sys.executable, "-m", "agentless", "nodes", "show", "node2", "--json"]
            return lambda: json.loads(subprocess.check_output(asked, env=home | dict(variables)))["state"] == state

        until(becomes("online"))
        for line, state in (("unplug node2", "offline"), ("plug node2", "online")):
            demo.stdin.write(f"{line}\n")
            until(becomes(state))
        demo.stdin.write("pull node9\n")
        assert (
            "unknown command; use unplug NODE or plug NODE, where NODE is one of node1, node2, node3, node4\n"
            in iter(demo.stderr.readline, "")
        )
        demo.stdin.close()
        assert demo.wait() == 0
