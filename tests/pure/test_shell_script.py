"""The script behind `agentless shell`, run by real shells with a stand-in for docker: the program ends with it."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentless.model.command import escaped
from agentless.model.nodes.node import NodeConfig
from agentless.model.terminal import Attachment, InputKind, Size
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.keyboard import TAKE
from tests.pure.build import SIGNER
from tests.pure.shells import SHELLS

FAKE = Path(__file__).parent / "data" / "docker" / "fake_exec.py"
MARK = "6d61726b"
WITHIN = 30
"""Seconds in which something must have ended."""


class Node:
    """A node with this `sh`, and a stand-in for docker."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self._shell = shell
        (folder / "docker").write_text(f'#!/bin/sh\nexec {sys.executable} -SE {FAKE} "$@"\n')
        (folder / "docker").chmod(0o755)
        self._env = {"PATH": f"{folder}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        self._docker = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)

    def piped(self, *command: str) -> subprocess.Popen[bytes]:
        """Begin a program without a terminal; what it prints from its own beginning on is left to be read."""
        script = self._docker.terminal.shell("c1", command, MARK, Attachment(InputKind.LINES)).script
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running = subprocess.Popen([*self._shell, "-c", script], env=self._env, bufsize=0, **pipes)
        assert running.stdout.read(len(MARK) + 1) == f"{MARK};".encode()
        return running

    def on_terminal(self, *command: str) -> tuple[subprocess.Popen[bytes], int]:
        """Begin one on a terminal, and our end of that."""
        script = self._docker.terminal.shell("c1", command, MARK, Attachment(InputKind.TERMINAL, Size(80, 24))).script
        ours, theirs = os.openpty()
        argv = ["sh", "-c", TAKE, os.ttyname(theirs), *self._shell, "-c", script]
        running = subprocess.Popen(argv, env=self._env, stdin=theirs, start_new_session=True)
        os.close(theirs)
        return running, ours


@pytest.fixture(params=SHELLS, ids=" ".join)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"no {request.param[0]} here")
    return Node(tmp_path, request.param)


def ends(pid: int) -> bool:
    """Wait for the end of a process that is not ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(pidfd):
        return bool(select.select([pidfd], [], [], WITHIN)[0])


def until_line(terminal: int) -> bytes:
    """What it prints, to the end of its first line."""
    seen = b""
    while not seen.endswith(b"\n"):
        seen += os.read(terminal, 1)
    return seen


def test_input_output_errors_and_an_exit_code(node):
    running = node.piped("sh", "-c", "cat; echo err >&2; exit 7")
    running.stdin.write(escaped(b"a\n.\n") + b"\n" + escaped(b"b") + b"\n.\n")
    assert (running.stdout.read(), running.stderr.read(), running.wait(WITHIN)) == (b"a\n.\nb", b"err\n", 7)


def test_a_program_that_reads_nothing_ends_all_the_same(node):
    running = node.piped("true")
    assert running.wait(WITHIN) == 0


def test_a_program_ends_when_its_input_breaks_off(node):
    running = node.piped("sh", "-c", "echo $$; exec sleep 600")
    pid = int(running.stdout.readline())
    running.stdin.close()
    assert ends(pid)
    assert running.wait(WITHIN) == 128 + 1  # it was hung up


def test_the_end_of_the_input_is_not_its_breaking_off(node):
    running = node.piped("sh", "-c", "cat; echo $$; exec sleep 600")
    running.stdin.write(b".\n")
    pid = int(running.stdout.readline())
    os.kill(pid, 0)
    running.stdin.close()
    assert ends(pid)


def test_a_program_ends_when_its_terminal_is_hung_up(node):
    running, terminal = node.on_terminal("sh", "-c", "echo $$; exec sleep 600")
    pid = int(until_line(terminal).removeprefix(f"{MARK};".encode()))
    os.close(terminal)
    assert ends(pid)
    assert running.wait(WITHIN) == 129


@pytest.mark.parametrize("node", SHELLS[:1], indirect=True, ids=" ".join)
def test_one_that_does_not_hear_of_it_is_killed(node):
    running, terminal = node.on_terminal("sh", "-c", "trap '' HUP; echo $$; while :; do sleep 1; done")
    pid = int(until_line(terminal).removeprefix(f"{MARK};".encode()))
    os.close(terminal)
    assert ends(pid)
    running.wait(WITHIN)


@pytest.mark.parametrize("node", SHELLS[:1], indirect=True, ids=" ".join)
def test_only_the_program_itself_hears_of_it(node):
    running, terminal = node.on_terminal("sh", "-c", "sleep 600 & echo $$ $!; exec sleep 600")
    pid, other = map(int, until_line(terminal).removeprefix(f"{MARK};".encode()).split())
    os.close(terminal)
    assert ends(pid)
    running.wait(WITHIN)
    os.kill(other, 9)


def test_a_terminal_gives_the_programs_exit_code(node):
    running, terminal = node.on_terminal("sh", "-c", "test -t 0 && test -t 1 && exit 5")
    assert running.wait(WITHIN) == 5
    os.close(terminal)
