"""Logs outlive containers: what a task printed can be read when its container, its node or its disk space is gone."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from pathlib import Path

import pytest

from agentless.paths import template_dir
from tests.real.cli import Cli, containers, inventory_of, until

BINARY = r"""head -c 300000 /dev/zero | tr '\0' '\377'; printf '\000\001x'; seq 9000 >&2; printf 'no newline' >&2"""
OUT = b"\xff" * 300_000 + b"\0\1x"
BOTH = r"""head -c 300000 /dev/zero; printf '\001\r\n'; seq 9000 >&2; printf 'no newline' >&2"""
ERR = "".join(f"{n}\n" for n in range(1, 9001)).encode() + b"no newline"
PLAIN = bytes(300_000) + b"\1\r\n"
GONE = "and its container is gone"
LONG = """awk 'BEGIN { for (i = 0; i < 20000; i++) printf "%0999d\\n", i }'; seq 3 >&2"""


@pytest.fixture
def alone(lab):
    """Somebody whose controller has not been started yet."""
    cli = Cli(lab, "keeper")
    yield cli
    cli.close()


@pytest.fixture
def exact(alone):
    """The same, with a log of their tasks that is exact: Docker's usual one replaces what is no UTF-8."""
    template = alone.config / "templates" / "docker-run.j2"
    template.parent.mkdir()
    text = (template_dir() / "docker/launch" / template.name).read_text()
    template.write_text(text.replace(" create ", " create --log-driver local "))
    return alone


def keep(cli: Cli, words: str) -> None:
    cli.write_inventory(inventory_of(cli.lab) + f"keep: {{{words}}}\n")


def kept(cli: Cli, script: str, code: int = 0) -> str:
    """A task that has ended and whose log has been fetched."""
    task = cli.submit("node1", "--", "sh", "-c", script)
    cli("wait", task, code=code)
    until(lambda: file(cli, task).exists(), 60)
    return task


def file(cli: Cli, task: str) -> Path:
    return cli.state / "logs" / f"{task}.log"


def gone(cli: Cli, node, task: str) -> None:
    """Somebody removes the container on the node, and the controller has heard of it."""
    node.sh(f"docker rm agentless-{task}")
    until(lambda: cli("logs", task, "--timestamps", code=None).code == 3)


def log(cli: Cli, task: str, *words: str) -> tuple[bytes, bytes]:
    ran = subprocess.run(["agentless", "logs", task, *words], env=cli.env, capture_output=True, check=True, timeout=90)
    return ran.stdout, ran.stderr


@pytest.mark.slow
def test_both_streams_are_whole_after_the_container_was_removed_by_hand(exact, node):
    task = kept(exact, BINARY)
    gone(exact, node, task)
    assert log(exact, task) == (OUT, ERR)
    assert log(exact, task, "--stderr") == (b"", ERR)
    assert log(exact, task, "--stdout", "--follow") == (OUT, b"")


@pytest.mark.slow
def test_the_last_lines_are_those_that_docker_gives(alone, node):
    """Also of a line that is so long that Docker counts it as several."""
    task = kept(alone, "seq 5; head -c 40000 /dev/zero | tr '\\0' x; echo; seq 3; printf end")
    counts = ("0", "1", "2", "4", "5", "6", "7", "8", "99")
    from_docker = {n: node.sh(f"docker logs --tail {n} agentless-{task}").stdout.encode() for n in counts}
    assert {n: log(alone, task, "--tail", n)[0] for n in counts} == from_docker


@pytest.mark.slow
def test_a_log_of_20_mb_is_cut_exactly_and_says_so(alone, node):
    task = kept(alone, LONG)
    whole = "".join(f"{n:0999}\n" for n in range(20_000)).encode()
    out, err = log(alone, task)
    assert (digest(out), err) == (digest(whole), b"1\n2\n3\n")
    gone(alone, node, task)
    out, err = log(alone, task)
    half = 8 << 20
    assert digest(out) == digest(whole[:half] + whole[-half + 6 :])
    missing = len(whole) - 2 * half + 6
    note = f"agentless: {missing:,} bytes of standard output omitted from the middle of this log"
    assert err.decode().startswith(note)
    assert err.endswith(b"1\n2\n3\n")
    assert log(alone, task, "--tail", "2") == (whole[-2000:], b"2\n3\n")
    assert file(alone, task).stat().st_size < (16 << 20) + (64 << 10)


def digest(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_the_container_goes_after_its_time_and_the_log_stays(alone, node):
    keep(alone, "containers: 1s")
    task = kept(alone, f"{BOTH}; exit 3", code=3)
    until(lambda: containers(node) == [], 30)
    assert log(alone, task) == (PLAIN, ERR)
    shown = alone.task(task)
    assert (shown["state"], shown["exit_code"]) == ("failed", 3)
    assert "has no timestamps, and its container is gone" in alone("logs", task, "--since", "1h", code=3).err


@pytest.mark.slow
def test_a_running_container_and_one_of_somebody_else_stay(alone, node):
    keep(alone, "containers: 1s")
    other = Cli(alone.lab, "other")
    try:
        theirs = kept(other, "true")
        running = alone.submit("node1", "--", "sleep", "600")
        kept(alone, "true")
        until(lambda: len(containers(node)) == 2, 30)
        assert sorted(containers(node)) == sorted([f"agentless-{theirs}", f"agentless-{running}"])
    finally:
        other.close()


@pytest.mark.slow
def test_a_log_of_a_task_that_ended_while_no_controller_ran(alone, node):
    task = alone.submit("node1", "--", "sh", "-c", f"until [ -e /go ]; do sleep .05; done; {BOTH}")
    alone.kill_controller()
    node.sh(f"docker exec agentless-{task} touch /go; docker wait agentless-{task}")
    alone("ps")
    until(lambda: file(alone, task).exists())
    gone(alone, node, task)
    assert log(alone, task) == (PLAIN, ERR)


@pytest.mark.slow
def test_a_kept_log_needs_no_node(alone, node):
    """Neither one that answers, nor one in the inventory."""
    task = kept(alone, BOTH)
    node.stop_sshd()
    until(lambda: alone.node("node1")["state"] == "offline")
    assert log(alone, task) == (PLAIN, ERR)
    alone.write_inventory(inventory_of(alone.lab).replace("  node1:", "  node3:"))
    assert log(alone, task) == (PLAIN, ERR)


@pytest.mark.slow
def test_the_oldest_logs_are_given_up_for_the_disk_budget(alone, node):
    keep(alone, "logs: 10KiB")
    tasks = [kept(alone, f"echo {n}") for n in range(3)]
    for task in tasks:
        node.sh(f"docker rm agentless-{task}")
    until(lambda: alone("logs", tasks[0], code=None).code == 3)
    said = alone("logs", tasks[0], code=3)
    assert (said.out, said.err) == (
        "",
        f"agentless: the log of task {tasks[0]} was discarded to save disk space (keep: logs), {GONE}\n",
    )
    assert [log(alone, task) for task in tasks[1:]] == [(b"1\n", b""), (b"2\n", b"")]


@pytest.mark.slow
def test_a_log_whose_container_was_removed_too_early_is_told(alone, node):
    task = alone.submit("node1", "--", "sleep", "600")
    node.sh(f"docker rm -f agentless-{task}")
    alone("wait", task, code=None)
    said = alone("logs", task, code=3).err
    assert said == f"agentless: task {task} has no log: its container was removed before agentless copied the log\n"


def test_rm_removes_the_log(alone):
    task = kept(alone, "echo x")
    alone("rm", task)
    assert not file(alone, task).exists()


@pytest.fixture
def small_disk(lab):
    """Somebody whose state folder is a file system of its own, of 4 MB."""
    cli = Cli(lab, "small-logs")
    folder = cli.env["XDG_STATE_HOME"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)
    yield cli
    cli("controller", "stop", code=None)
    subprocess.run(["umount", "--lazy", folder], check=True)
    cli.close()


@pytest.mark.slow
def test_a_log_for_which_the_disk_has_no_room_waits_on_its_node(small_disk, node):
    """The controller goes on and says so; the log comes when there is room."""
    small_disk.settle()
    filler = small_disk.state / "filler"
    filler.write_bytes(bytes(1 << 20))
    task = small_disk.submit("node1", "--", "sh", "-c", "head -c 3500000 /dev/zero; echo end >&2")
    small_disk("wait", task)
    until(lambda: "No space left on device; the container stays on node1" in small_disk("ps").err)
    assert digest(log(small_disk, task)[0]) == digest(bytes(3_500_000))
    assert containers(node) == [f"agentless-{task}"]
    small_disk("submit", "node1", "--wait", "--", "true")
    with contextlib.suppress(FileNotFoundError):
        filler.unlink()
    small_disk.kill_controller()  # the next one tries at once and not after a minute
    small_disk("ps")
    until(lambda: file(small_disk, task).exists())
    gone(small_disk, node, task)
    out, err = log(small_disk, task)
    assert (digest(out), err) == (digest(bytes(3_500_000)), b"end\n")
