"""A real Jupyter from PyPI on a real engine, in a real browser, by `agentless notebook`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, chromium
from tests.keyboard import at_terminal
from tests.real.cli import Cli, until
from tests.real.test_ssh import EVERYTHING

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian's package chromium)"),
]
PYTHON = "/usr/bin/python3"
"""Mounted into the container, where the packages are in the env."""
WITHIN = 60_000
CELL = "import os; print('answer', 6 * 7, os.environ['NVIDIA_VISIBLE_DEVICES'])"


@pytest.fixture
def agentless(lab):
    cli = Cli(lab).settle()
    yield cli
    lab.reset()
    cli("env", "rm", "jupyter", "--yes", code=None)


@pytest.fixture
def env(lab, agentless):
    """An env with JupyterLab."""
    context = lab.root / "jupyter"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", context / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", context / "venv/bin/python", "install", "--quiet", "jupyterlab"]
    if (done := subprocess.run(pip, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no Jupyter from PyPI: {done.stderr.splitlines()[-1:]}")
    (context / "Dockerfile").write_text(
        f"FROM busybox\nCOPY venv {context}/venv\nENV PATH={context}/venv/bin:/usr/bin:/bin\n"
    )
    agentless("env", "build", "jupyter", str(context), "--on", "node1")
    return "jupyter"


def run_a_cell(page):
    """Make a notebook, run a cell, save it; gives what the cell has printed."""
    page.wait_for_selector("text=Python 3 (ipykernel)", timeout=WITHIN)
    page.click(".jp-LauncherCard[data-category=Notebook]")
    page.wait_for_selector("text=/Python 3 .ipykernel. \\| Idle/", timeout=WITHIN)
    page.click(".jp-Notebook .jp-Cell .cm-content")
    page.keyboard.type(CELL)
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector(".jp-OutputArea-output", timeout=WITHIN)
    page.keyboard.press("Control+s")
    page.click("text=Rename and Save")
    page.wait_for_selector(".jp-Dialog", state="detached", timeout=WITHIN)
    page.wait_for_selector(".jp-NotebookPanel:not(.jp-mod-dirty)", timeout=WITHIN)
    return page.locator(".jp-OutputArea-output").first.inner_text()


def test_a_kernel_on_a_gpu_runs_a_cell_and_its_notebook_comes_back(agentless, env, tmp_path):
    folder, opened, browser = tmp_path / "project", tmp_path / "opened.html", tmp_path / "browser"
    folder.mkdir()
    browser.write_text(f'#!/bin/sh\ncp "${{1#file://}}" {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    words = ["agentless", "notebook", "node1::1", str(folder), "--container", env, *EVERYTHING]
    with at_terminal(words, {**agentless.env, "BROWSER": f"{browser} %s"}) as keyboard:
        keyboard.sees(b"asks whether to stop it")
        token = re.search(rb"token=(\w+)", keyboard.output)[1].decode()
        until(opened.exists)
        with chromium() as started:
            page = started.new_context().new_page()
            page.goto(opened.as_uri())
            printed = run_a_cell(page)
        keyboard.type(b"\x03")
        keyboard.sees(b"[y/N]")
        keyboard.type(b"y\r")
        assert keyboard.ended() == 0
    uuid = agentless.task("notebook")["gpu_uuids"][0]
    assert printed.strip() == f"answer 42 {uuid}"
    [cell, *_] = json.loads(Path(folder, "Untitled.ipynb").read_text())["cells"]
    assert "".join(cell["outputs"][0]["text"]) == f"answer 42 {uuid}\n"
    log = agentless("logs", "notebook")
    assert "Kernel started" in log.out + log.err
    assert token not in log.out + log.err
