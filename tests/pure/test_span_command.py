"""`agentless span`: real processes on this machine, one for each combination."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import subprocess
import sys

import pytest

HANG = "tail -f /dev/null & wait"
SAVES = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), os._exit(7)))
print("ready", flush=True)
while True:
    signal.pause()
"""
OUTLIVES = """
import os, signal, sys
parent = os.getppid()
def save(*_):
    while os.getppid() == parent:
        pass
    sum(range(10_000_000))
    open(sys.argv[1], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    signal.pause()
"""

PATIENT = """
from agentless.__main__ import main
from agentless.cli.span import local_runs
local_runs.GRACE = 3600.0
main()
"""


class Sweep:
    """`agentless span` while it runs."""

    def __init__(self, folder, *words, program=("-m", "agentless"), **streams):
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [sys.executable, *program, "span", *words]
        self.process = subprocess.Popen(command, cwd=folder, text=True, errors="replace", **streams)

    def read_lines(self, count):
        """The next so many lines on its stdout, in any order."""
        return sorted(self.process.stdout.readline() for _ in range(count))

    def end(self):
        """What else it says: its exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def sweep(tmp_path):
    started = []

    def start(*words, **streams):
        started.append(Sweep(tmp_path, *words, **streams))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.communicate()


@pytest.fixture
def span(sweep):
    """Run it to its end: exit code, stdout, stderr."""
    return lambda *words: sweep(*words).end()


def rows(err):
    """The cells of the table, without the times."""
    lines = err.splitlines()
    title = next(at for at, line in enumerate(lines) if "EXIT CODE" in line)
    return [re.split(r"  +", line.strip())[:-1] for line in lines[title:]]


def test_one_at_a_time_has_the_output_as_it_is(span):
    assert span("--", "echo", "span:{1..3}")[:2] == (0, "1\n2\n3\n")


def test_one_at_a_time_is_announced_in_between(span):
    err = span("--", "sh", "-c", "echo out x=span:[a,b] >&2")[2]
    assert err.startswith("--- 1/2 x=a\nout x=a\n--- 2/2 x=b\nout x=b\n")


@pytest.mark.parametrize("stream", [1, 2])
def test_of_several_at_once_each_line_says_whose_it_is(span, stream):
    script = f"(echo x=span:{{1..2}}; printf 'no end') >&{stream}"
    lines = span("-j2", "--", "sh", "-c", script)[stream].splitlines()[:4]
    assert sorted(lines) == ["1/2 x=1 | no end", "1/2 x=1 | x=1", "2/2 x=2 | no end", "2/2 x=2 | x=2"]


def test_the_table_has_parameters_against_exit_codes(span):
    err = span("--zip", "--", "sh", "-c", "exit $0", "span:[0,3]", "seed=span:[a,b c]")[2]
    assert rows(err) == [["arg3", "seed", "EXIT CODE"], ["0", "a", "0"], ["3", "b c", "3"]]


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (["sh", "-c", "exit span:[0,0]"], 0, "0"),
        (["sh", "-c", "exit span:[0,5,3]"], 5, "5"),
        (["span:[true,/no/such/program]"], 127, "127"),
        (["span:[true,/]"], 126, "126"),
        (["sh", "-c", "kill -span:[TERM,KILL] $$"], 143, "143 (SIGTERM)"),
    ],
)
@pytest.mark.parametrize("parallel", ["-j1", "-j3"])
def test_the_exit_code_is_the_first_that_is_not_0(span, words, code, shown, parallel):
    found, _, err = span(parallel, "--", *words)
    assert found == code
    assert shown in {row[-1] for row in rows(err)}


def test_a_program_that_is_not_there_is_named(span):
    assert "1/1 arg0=/no/such: cannot run /no/such: No such file or directory" in span("--", "span:[/no/such]")[2]


def test_one_that_fails_does_not_keep_others_from_running(span):
    assert span("--", "sh", "-c", "echo span:{1..2}; exit 1")[1] == "1\n2\n"


def test_with_fail_fast_none_is_started_after_a_failure(span):
    code, out, err = span("--fail-fast", "--", "sh", "-c", "echo span:{1..3}; exit 4")
    assert (code, out) == (4, "1\n")
    assert [row[-1] for row in rows(err)] == ["EXIT CODE", "4", "not run", "not run"]


def test_so_many_run_at_once(span, tmp_path):
    """Each waits for the other: a pipe with a name opens when both ends do."""
    os.mkfifo(tmp_path / "pipe")
    script = "case span:{1..2} in 1) echo met > pipe;; 2) cat pipe;; esac"
    assert span("-j2", "--", "sh", "-c", script)[1] == "2/2 c=2 | met\n"


def test_no_more_run_at_once_than_asked_for(span):
    script = "mkdir busy || exit 1; : span:{1..6}; rmdir busy"
    assert span("--", "sh", "-c", script)[0] == 0


def test_commands_do_not_read_the_input(sweep):
    running = sweep("--", "sh", "-c", "cat; echo span:[a,b]")
    running.process.stdin.write("typed\n")
    assert running.end()[:2] == (0, "a\nb\n")


def test_a_dry_run_prints_commands_for_a_shell_and_runs_none(span, tmp_path):
    code, out, _ = span("--dry-run", "--", "touch", "span:[a,'it''s, b']")
    assert (code, out) == (0, "touch a\ntouch 'it'\"'\"'s, b'\n")
    assert list(tmp_path.iterdir()) == []


def test_values_come_from_a_file(span, tmp_path):
    (tmp_path / "words.txt").write_bytes(b"\xef\xbb\xbfone\r\n\n two\x0bwords \nl\xf6s")
    assert span("--", "printf", "%s|", "span:[@words.txt]")[1] == "one|two\x0bwords|l\ufffds|"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["echo", "span:{1..3}"], "Write the command after --"),
        (["--"], "Write the command after --"),
        (["--", "echo", "{1..3}"], "No span in the command"),
        (["--", "echo", "span:[@no.txt]"], "'span:[@no.txt]': cannot read no.txt: No such file or directory"),
        (["--", "echo", "span:[@/dev/zero]"], "/dev/zero is not a text file with one value per line"),
        (["-j0", "--", "echo", "span:[a,b]"], "parallel"),
    ],
)
def test_what_cannot_be_meant_is_usage(span, words, said):
    code, out, err = span(*words)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("parallel", ["-j1", "-j2"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_commands_with_time_to_save(sweep, parallel, number, code):
    running = sweep(parallel, "--", sys.executable, "-c", SAVES, "span:[a]")
    running.read_lines(1)
    running.process.send_signal(number)
    found, out, err = running.end()
    assert (found, out.endswith("saved\n")) == (code, True)
    assert rows(err)[1] == ["a", "7"]


def test_after_a_signal_no_more_is_started(sweep):
    running = sweep("--", "sh", "-c", f"echo span:[a,b]; {HANG}")
    running.read_lines(1)
    running.process.send_signal(signal.SIGINT)
    assert [row[-1] for row in rows(running.end()[2])] == ["EXIT CODE", "143 (SIGTERM)", "not run"]


def test_the_second_ctrl_c_kills_what_does_not_end(sweep):
    command = ("sh", "-c", f"trap '' TERM; echo ready span:[a,b]; {HANG}; {HANG}")
    running = sweep("-j2", "--", *command, program=("-c", PATIENT))
    running.read_lines(2)
    running.process.send_signal(signal.SIGINT)
    while "Stopping 2 running" not in (line := running.process.stderr.readline()):
        assert line, "it ended without a word of it"
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.end()
    assert code == 130
    assert [row[-1] for row in rows(err)] == ["EXIT CODE", "137 (SIGKILL)", "137 (SIGKILL)"]


def test_what_the_commands_had_started_ends_with_them(sweep, tmp_path):
    """The pipe with a name is at its end when nobody holds its other end."""
    os.mkfifo(tmp_path / "held")
    running = sweep("--", "sh", "-c", "tail -f /dev/null 9>held & : span:[a]; wait")
    with open(tmp_path / "held", "rb") as held:
        running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == 130
        os.set_blocking(held.fileno(), False)
        assert held.read() == b""


def test_what_outlives_its_command_after_a_signal_has_time_to_save(sweep, tmp_path):
    running = sweep("--", "sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", OUTLIVES, "span:[saved]")
    running.read_lines(1)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait() == 130
    assert (tmp_path / "saved").exists()


def test_what_a_command_leaves_running_does_not_keep_it_from_ending(span, tmp_path):
    os.mkfifo(tmp_path / "until")
    code, out, _ = span("-j2", "--", "sh", "-c", "cat until & echo span:[a,b]")
    with open(tmp_path / "until", "wb"):
        assert (code, sorted(out.splitlines())) == (0, ["1/2 c=a | a", "2/2 c=b | b"])


def test_a_reader_that_leaves_ends_the_commands(sweep):
    running = sweep("-j2", "--", "sh", "-c", "trap 'exit 0' TERM; while echo span:[a,b]; do :; done")
    running.read_lines(1)
    running.process.stdout.close()
    running.process.stdout = None
    assert running.end()[0] == 141


def test_output_that_cannot_be_written_is_said_and_ends_the_commands(sweep):
    with open("/dev/full", "wb") as full:
        running = sweep("-j2", "--", "sh", "-c", f"echo span:[a,b]; {HANG}", stdout=full)
        code, _, err = running.end()
    assert code == 1
    assert "agentless: Cannot write the output: No space left on device" in err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_output_is_lost_to_a_slow_reader(sweep, tmp_path, monkeypatch, unbuffered):
    """When the command ends, a part of it is in the pipe to us and the rest in the pipe to `span`."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    os.mkfifo(tmp_path / "over")
    running = sweep("-j2", "--", "sh", "-c", "seq 14000; echo > over", "span:[a]")
    (tmp_path / "over").read_text()
    for number in range(1, 14001):
        assert running.process.stdout.readline() == f"1/1 arg3=a | {number}\n"
        running.process.send_signal(signal.SIGCHLD)  # it cuts a blocked write short


def test_memory_does_not_grow_with_output(sweep):
    """The processes are given less of it than there is output."""
    with open(os.devnull, "wb") as nowhere:
        running = sweep(
            "-j2", "--", "head", "-c", "400M", "span:[/dev/zero]", stdout=nowhere,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)),
        )  # fmt: skip
        assert running.end()[0] == 0


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_for_terminals(sweep, terminal):
    master, slave = pty.openpty() if terminal else os.pipe()
    running = sweep("-j2", "--", "true", "span:[a]", stderr=slave)
    with open(master, "rb", buffering=0) as screen:
        os.close(slave)
        running.end()
        assert (b"--- 1/1 arg1=a: exit code 0 (1 done)" in screen.read(4096)) == terminal
