"""`doctor --between`: what a node says of its connections, and what follows from it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.model.command import Result
from agentless.paths import template_dir
from agentless.remote.between import attempt, listen, parse
from agentless.render import Renderer
from agentless.rules.nodes.checks.between import NO_PROGRAM, Target, check
from tests.ports import reserve
from tests.pure.shells import SHELLS

renderer = Renderer([template_dir()])
THERE = Target("node2", "10.0.0.2", 29500, "eth0")
CLIENTS = ("bash", "python3", "perl", "nc")
shells = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def path_with(folder: Path, *programs: str) -> str:
    """A PATH on which there are these of the programs that a script may look for, and all that it needs besides."""
    for name in ("timeout", "sed", "sh", *programs):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"no {name} on this machine")
        folder.joinpath(name).symlink_to(os.path.realpath(found) if name != "nc" else found)
    return str(folder)


def ran(shell: list[str], script: str, path: str) -> Result:
    argv = [shutil.which(shell[0]) or shell[0], *shell[1:]]
    done = subprocess.run(argv, input=script.encode(), env={"PATH": path}, capture_output=True, check=False, timeout=60)
    return Result(done.returncode, done.stdout, done.stderr)


@shells
@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_is_tried_with_what_the_node_has(shell: list[str], client: str, port: int, tmp_path: Path) -> None:
    with reserve() as closed:
        targets = {3: Target("a", "127.0.0.1", port), 7: Target("b", "127.0.0.1", closed.getsockname()[1])}
        result = ran(shell, attempt(renderer, targets, 30).script, path_with(tmp_path, client))
        assert parse(result, targets) == {3: "open", 7: "Connection refused"}


def test_a_node_without_any_of_these_says_so(tmp_path: Path) -> None:
    result = ran(["dash"], attempt(renderer, {0: THERE}, 30).script, path_with(tmp_path))
    assert parse(result, {0: THERE}) == {0: NO_PROGRAM}


@pytest.mark.parametrize("program", ["python3", "perl"])
def test_a_node_listens_with_what_it_has_until_its_shell_is_ended_with_all_that_it_started(
    program: str, tmp_path: Path
) -> None:
    with reserve() as free:
        there = {0: Target("a", "127.0.0.1", free.getsockname()[1])}
    path = path_with(tmp_path, program, "bash")
    argv = [shutil.which("dash") or "dash", "-c", listen(renderer, there[0].port, 60).script]
    with subprocess.Popen(argv, env={"PATH": path}, stdout=subprocess.PIPE, start_new_session=True) as listener:
        assert listener.stdout
        assert listener.stdout.readline() == b"listening\n"
        script = attempt(renderer, there, 30).script
        assert parse(ran(["dash"], script, path), there) == {0: "open"}
        os.killpg(listener.pid, signal.SIGKILL)
        assert listener.stdout.read() == b""  # all that had it open are gone
    assert parse(ran(["dash"], script, path), there) == {0: "Connection refused"}


@pytest.mark.parametrize("out", [b"", b"9 open\n", b"open\n0\n", b"0 " + b"x" * 500, b"\xff\x00"])
def test_an_answer_that_cannot_be_read_says_nothing(out: bytes) -> None:
    assert parse(Result(0, out), {0: THERE}) == {0: ""}


@pytest.mark.parametrize(
    ("said", "listens", "verdict", "words"),
    [
        ("open", True, "ok", "10.0.0.2 (eth0), port 29500"),
        ("Connection refused", False, "ok", "10.0.0.2 (eth0); it refused port 29500, on which nothing listens"),
        ("Connection refused", True, "failed", "a firewall refuses port 29500 of 10.0.0.2 (eth0)"),
        ("Connection timed out", True, "failed", "no answer from 10.0.0.2 (eth0), port 29500"),
        ("No route to host", True, "failed", "no way to 10.0.0.2 (eth0), port 29500: No route to host"),
        ("Name or service not known", True, "failed", "node1 does not know the name 10.0.0.2"),
        (NO_PROGRAM, True, "skipped", "node1 has none of bash, python3, perl and nc, so it cannot try"),
        ("", True, "skipped", "node1 did not answer"),
    ],
)
def test_what_follows_from_a_connection(said: str, listens: bool, verdict: str, words: str) -> None:
    there = Target("node2", "10.0.0.2", 29500, "eth0", listens)
    found = check("node1", "10.0.0.1", there, said)
    assert (found.name, found.verdict, found.wrong or found.seen) == ("from node1", verdict, words)
    assert bool(found.fix) == (verdict == "failed")
