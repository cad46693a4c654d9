"""`agentless notebook` on real engines, with a stand-in for Jupyter; and the ports of `submit --port`."""

from __future__ import annotations

import contextlib
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.keyboard import at_terminal
from tests.ports import reserve
from tests.real.cli import finish, until
from tests.real.jupyter import IMAGE, make_image

SERVER = "mkdir www; hostname >www/index.html; exec httpd -f -p 127.0.0.1:8888 -h www"
CTRL_C = b"\x03"


@pytest.fixture
def image(lab):
    node = lab.nodes["node1"]
    make_image(node)
    yield IMAGE
    lab.reset()
    node.sh(f"docker rmi --force {IMAGE}")


@pytest.fixture
def port():
    """A free port of this machine."""
    with reserve() as holder:
        return holder.getsockname()[1]


@pytest.fixture
def folder(agentless, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    return tmp_path


def fetch(url):
    """Without a program that has the token as an argument."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()
    return b""


class Shown:
    """`agentless notebook` at a terminal, with the address that it prints."""

    def __init__(self, agentless, *words, answer=None):
        with at_terminal(["agentless", "notebook", *words], agentless.env) as keyboard:
            keyboard.sees(b"asks whether to stop it")
            self.url = re.search(rb"http://\S+", keyboard.output)[0].decode()
            self.token = self.url.partition("?token=")[2]
            self.page = fetch(self.url)
            keyboard.type(CTRL_C)
            keyboard.sees(b"[y/N]")
            keyboard.type(b"y\r" if answer else b"\r")
            self.code, self.text = keyboard.ended(), keyboard.text()


# ---------------------------------------------------------------------- submit --port


def test_a_port_is_forwarded_while_the_output_is_shown_and_refused_before_anything_starts(agentless, port):
    words = ("submit", "node1", "--port", f"8888:{port}", "--name", "web")
    following = agentless.start(*words, "--follow", "--", "sh", "-c", SERVER)
    assert following.stderr.readline()  # where it runs
    assert following.stderr.readline() == f"Port 8888 answers: http://localhost:{port}\n"
    assert fetch(f"http://localhost:{port}/").strip()
    assert agentless.task("web")["ports"] == [{"port": 8888, "local": port}]
    tasks = len(agentless.get("/v1/tasks"))
    refused = agentless(*words, "--follow", "--", "true", code=3).err
    assert f"cannot listen on port {port} of this machine" in refused
    assert f"--port 8888:{port + 1}" in refused
    assert len(agentless.get("/v1/tasks")) == tasks
    agentless("kill", "web")
    finish(following)


@pytest.mark.slow
def test_what_is_not_followed_is_forwarded_on_request(agentless, port):
    submitted = agentless("submit", "node1", "--port", f"8888:{port}", "--name", "web", "--", "sh", "-c", SERVER)
    assert f"To forward 8888:{port}: agentless forward {submitted.out}" in submitted.err
    forwarding = agentless.start("forward", "web")
    assert f"http://localhost:{port} to port 8888 of web" in forwarding.stdout.readline()
    until(lambda: fetch(f"http://localhost:{port}/").strip())
    forwarding.kill()
    forwarding.communicate()
    agentless("submit", "node1", "--name", "none", "--", "sleep", "600")
    assert "none was not submitted with --port" in agentless("forward", "none", code=2).err


# ---------------------------------------------------------------------- notebooks


@pytest.mark.slow
def test_a_notebook_goes_on_is_found_again_and_brings_its_files_back(agentless, image, folder, port):
    first = Shown(agentless, "node1::0", str(folder), "--image", image, "--port", f"8888:{port}")
    assert first.url.startswith(f"http://localhost:{port}/?token=")
    assert first.page.strip()
    assert (first.code, "agentless notebook notebook" in first.text) == (0, True)
    [row] = agentless.json("notebook", "--list")
    assert (row["name"], row["state"], row["gpus"]) == ("notebook", "running", [0])
    again = Shown(agentless, "notebook", answer="y")
    assert (again.url, again.page, again.code) == (first.url, first.page, 0)
    assert agentless.task("notebook")["state"] == "stopped"
    assert Path(folder, "made.ipynb").read_text() == "made\n"
    assert agentless.json("notebook", "--list") == []


def test_the_token_is_nowhere_but_in_a_file_of_the_container(agentless, lab, image, folder, tmp_path):
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nps -eo args >{opened}.ps\ncp "${{1#file://}}" {opened}\n')
    browser.chmod(0o755)
    agentless.env["BROWSER"] = f"{browser} %s"
    shown = Shown(agentless, "node1::0", str(folder), "--image", image)
    assert "Opening it in your browser" in shown.text
    assert shown.url in until(lambda: opened.exists() and opened.read_text())
    assert shown.token not in Path(f"{opened}.ps").read_text()
    task = agentless.task("notebook")
    node = lab.nodes["node1"]
    told = [
        node.sh(f"docker inspect {task['container']}; docker top {task['container']} -eo args").stdout,
        agentless("logs", "notebook").out,
        agentless("events", "--json").out,
        agentless("show", "notebook", "--json").out,
        str(agentless.get(f"/v1/tasks/{task['id']}/spec")),
        str(agentless.get(f"/v1/tasks/{task['id']}/script")),
    ]
    assert all(told)
    assert not any(shown.token in each for each in told)
    files = subprocess.run(["grep", "-r", shown.token, str(agentless.state)], capture_output=True, check=False)
    assert files.returncode == 1


@pytest.mark.slow
def test_of_two_starts_at_once_in_a_vps_one_starts_jupyter(agentless, image):
    agentless("vps", "create", "box", "node1::0", "--image", image)
    try:
        both = [agentless.start("notebook", "box") for _ in range(2)]
        urls = [process.stdout.readline() for process in both]
        for process in both:
            process.kill()
            process.communicate()
        assert len({url.partition("?token=")[2] for url in urls}) == 1
        assert len({url.partition("?token=")[0] for url in urls}) == 2
        assert agentless("exec", "box", "ps").out.count("jupyter-lab --ip") == 1
    finally:
        agentless("vps", "rm", "box", "--force", "--yes")


@pytest.mark.slow
def test_jupyter_in_a_vps_stays_and_can_be_stopped(agentless, image):
    agentless("vps", "create", "box", "node1::0", "--image", image)
    try:
        first = Shown(agentless, "box")
        agentless("vps", "restart", "box", "--grace", "1")
        # What servers before the restart have left, with numbers that other processes have by now.
        left = "for n in $(seq 2 300); do echo '{}' >jpserver-$n.json; done"
        folder = "/dev/shm/agentless-notebook-0"
        agentless("exec", "box", "--", "sh", "-c", f"mkdir -p -m 700 {folder} && cd {folder} && {left}")
        again = Shown(agentless, "box", answer="y")
        assert first.page.strip() == b"box"
        assert again.page == first.page
        assert again.token != first.token  # it is only kept in memory
        assert "Stopped Jupyter in box" in again.text
        assert "jupyter" not in agentless("exec", "box", "ps").out
        assert "cannot be set" in agentless("notebook", "box", "--gpus", "2", code=2).err
        agentless("vps", "stop", "box", "--grace", "1")
        assert "agentless vps start box" in agentless("notebook", "box", code=3).err
    finally:
        agentless("vps", "rm", "box", "--force", "--yes")


def test_what_cannot_be_a_notebook_is_a_sentence(agentless, folder):
    lacking = agentless("notebook", "node1::0", str(folder), "--image", "busybox", code=3).err
    assert "agentless env create jupyter --from python:3.12-slim; agentless env exec jupyter -- pip install" in lacking
    assert "'nothing' is no notebook, VPS or folder" in agentless("notebook", "nothing", code=2).err
    assert "a target, folder or name is empty; omit it" in agentless("notebook", "", code=2).err
    assert "is not a folder" in agentless("notebook", "./nothing", code=2).err
    assert "needs a container" in agentless("notebook", "--container", "NULL", str(folder), code=2).err


# ---------------------------------------------------------------------- VS Code


def test_vs_code_is_opened_by_the_name_that_ssh_knows(agentless, tmp_path):
    home = {"HOME": str(tmp_path)}
    agentless("submit", "node1", "--name", "dev", "--workdir", "/tmp", "--", "sleep", "600")
    assert "first run: agentless ssh-config --install" in agentless("code", "dev", code=3, **home).err
    agentless("ssh-config", "--install", "--yes", **home)
    assert "type dev.agentless, then open the folder /tmp" in agentless("code", "dev", code=3, **home).err
    program = tmp_path / "bin/code"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    there = {**home, "PATH": f"{program.parent}:{agentless.env['PATH']}"}
    assert agentless("code", "dev", **there).out == "--remote ssh-remote+dev.agentless /tmp\n"
    assert agentless("code", "dev.agentless", "/work", **there).out == "--remote ssh-remote+dev.agentless /work\n"
    assert "absolute path" in agentless("code", "dev", "work", code=2, **there).err
