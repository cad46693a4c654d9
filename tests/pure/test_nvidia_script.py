"""The NVIDIA probe's script in every common shell, on a node with a stand-in nvidia-smi."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentless.gpus.nvidia.probe import ANSWER
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import join_sections, split_sections
from agentless.model.nodes.gpu import GpuSample, GpuTopology
from tests.engines import RENDERER, joined

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
GPU = "0, GPU-a, NVIDIA H100, 550.54.15, 00000000:3B:00.0, 81559, 7, 81552, 0"
FULL_LOOK = join_sections(Nvidia().sections(RENDERER, topology=True))
TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n"
MORE = ", 0, 31, 69.53, 700.00, [N/A], 345, 2619, P0, 0, Disabled, Default"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not shutil.which(SHELLS[name][0]):
        pytest.skip(f"{name} is not installed")
    return name


class Node:
    """A folder that is the node's PATH, with a stand-in nvidia-smi that answers from files and logs its calls."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell = folder, shell
        self.script = join_sections(Nvidia().sections(RENDERER))
        for program in ("timeout", "stat", "tr", "cat", "sleep", "flock", "head"):
            found = shutil.which("busybox" if shell == "busybox" and program != "flock" else program)
            assert found, f"{program} is not installed"
            (folder / program).symlink_to(found)

    def answers(
        self,
        gpus: str,
        apps: str = "",
        *,
        gpus_exit: int = 0,
        apps_exit: int = 0,
        base: str = "",
        words: str = "",
        topology: str = "",
    ) -> None:
        (self.folder / "gpus").write_text(gpus)
        (self.folder / "apps").write_text(apps)
        (self.folder / "base").write_text(base)
        (self.folder / "words").write_text(words)
        (self.folder / "topology").write_text(topology)
        self.install(
            f'case $* in *compute-apps*) cat "$here/apps"; cat "$here/words" >&2; exit {apps_exit} ;;\n'
            f'*mig.mode*) cat "$here/gpus"; exit {gpus_exit} ;;\n'
            'topo*) cat "$here/topology" ;;\n'
            '*) cat "$here/base" ;; esac'
        )

    def install(self, body: str, name: str = "nvidia-smi") -> None:
        program = self.folder / name
        program.unlink(missing_ok=True)
        program.write_text(f'#!/bin/sh\nhere=${{0%/*}}\necho "$*" >>"$here/{name}.calls"\n{body}\n')
        program.chmod(0o755)

    def calls(self, name: str = "nvidia-smi") -> list[str]:
        return (self.folder / f"{name}.calls").read_text().splitlines()

    def run(self) -> bytes:
        done = subprocess.run(
            [shutil.which(SHELLS[self.shell][0]) or "", *SHELLS[self.shell][1:]],
            input=self.script.encode(),
            cwd=self.folder,
            env={"PATH": str(self.folder), "LC_ALL": "de_DE.UTF-8"},
            capture_output=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    def sample(self) -> GpuSample:
        return Nvidia().parse(split_sections(self.run()))

    def full_look(self) -> tuple[GpuSample, GpuTopology | None]:
        self.script = self.script.replace(join_sections(Nvidia().sections(RENDERER)), FULL_LOOK)
        answer = split_sections(self.run())
        return Nvidia().parse(answer), Nvidia().parse_topology(answer)


@pytest.fixture
def node(tmp_path: Path, shell: str) -> Node:
    return Node(tmp_path, shell)


def test_a_node_without_nvidia_smi_has_no_gpus(node: Node) -> None:
    """A CPU node is no broken GPU node."""
    assert node.sample() == GpuSample()


def test_an_idle_node_is_asked_twice_and_nothing_else_is_run(node: Node) -> None:
    """With no process on the GPUs a sample costs the two questions alone: no other program is started."""
    node.answers(GPU + MORE)
    for program in ("stat", "tr"):
        node.install("exit 1", program)
    sample = node.sample()
    assert (len(sample.gpus), sample.processes, sample.error) == (1, (), None)
    assert [call.split()[1].split("=")[0] for call in node.calls()] == ["--query-gpu", "--query-compute-apps"]
    assert not list(node.folder.glob("stat.calls")) + list(node.folder.glob("tr.calls"))


def test_a_process_is_told_with_its_owner_and_one_clean_line_of_command(node: Node) -> None:
    """Whatever a program puts into its command line stays within one line of at most 200 characters."""
    argv = [sys.executable, "-c", "input()", "two\nlines", "\x1b[31mred", "@@agentless = 0", "x" * 400]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        node.answers(GPU + MORE, f"GPU-a, {process.pid}, python, 512\n")
        sample = node.sample()
        process.communicate(b"\n")
    assert sample.processes is not None
    (found,) = sample.processes
    assert found.pid == process.pid
    assert found.user == pwd.getpwuid(os.getuid()).pw_name
    assert found.command is not None
    assert found.command.startswith(f"{sys.executable} -c input() two lines  [31mred @@agentless = 0 xxx")
    assert found.command.isprintable()
    assert len(found.command) == 200


def test_a_long_command_line_stays_on_the_node(node: Node) -> None:
    """A sample is taken every other second: a class path of 100 kB does not travel each time."""
    with subprocess.Popen([sys.executable, "-c", "input()", "x" * 100_000], stdin=subprocess.PIPE) as process:
        node.answers(GPU + MORE, f"GPU-a, {process.pid}, python, 512\n")
        output = node.run()
        process.communicate(b"\n")
    assert b"input() xxx" in output
    assert max(map(len, output.split(b"\n"))) < 300


def test_a_process_on_several_gpus_is_looked_up_once(node: Node) -> None:
    """One training process on eight GPUs is one look into /proc."""
    node.answers(GPU + MORE, f"GPU-a, {os.getpid()}, python, 1\nGPU-b, {os.getpid()}, python, 2\n")
    assert [node.run().count(b"\n@%b %d " % (what, os.getpid())) for what in (b"owner", b"command")] == [1, 1]


def test_numbers_are_asked_for_without_a_locale(node: Node) -> None:
    """A node's locale puts no commas into the columns."""
    node.install(f'case $LC_ALL in C) echo "{GPU}{MORE}" ;; *) echo "{GPU.replace("81559", "81.559,0")}" ;; esac')
    assert node.sample().gpus[0].memory_total_mib == 81559


def test_a_process_that_is_gone_is_still_a_process(node: Node) -> None:
    """It held memory a moment ago: the GPU is not free, though nothing more can be told."""
    process = subprocess.Popen(["true"])
    process.wait()
    node.answers(GPU + MORE, f"GPU-a, {process.pid}, python, 512\n")
    sample = node.sample()
    assert sample.processes is not None
    (found,) = sample.processes
    assert (found.user, found.command, found.container, found.memory_mib) == (None, None, None, 512)


def test_a_process_name_cannot_end_the_answer(node: Node) -> None:
    """A name with newlines that looks like our marks hides no process behind it."""
    forged = "\n@@agentless = 0\n@end 0\n@@agentless .\n"
    node.answers(GPU + MORE, f"GPU-a, 999999999, x{forged}y, 1\nGPU-a, 999999998, python, 512\n")
    sample = node.sample()
    assert (sample.processes, bool(sample.error)) == (None, True)


def test_a_driver_that_refuses_a_field_is_asked_for_what_every_driver_knows(node: Node) -> None:
    """Old drivers in labs stay usable; what they do not tell is unknown."""
    refusal = 'Field "mig.mode.current" is not a valid field to query.\n\n'
    node.answers(refusal, gpus_exit=2, base=GPU + "\n")
    sample = node.sample()
    assert (sample.error, sample.processes) == (None, ())
    (gpu,) = sample.gpus
    assert (gpu.memory_used_mib, gpu.utilization_pct, gpu.mig, gpu.temperature_c) == (7, 0, None, None)


@pytest.mark.parametrize(
    ("apps_exit", "words"),
    [(3, ""), (0, "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n")],
    ids=["exit code", "standard error"],
)
def test_a_process_list_that_failed_is_no_empty_list(node: Node, apps_exit: int, words: str) -> None:
    """However the driver says that it could not tell: nobody is known, which is not nobody."""
    node.answers(GPU + MORE, apps_exit=apps_exit, words=words)
    sample = node.sample()
    assert (len(sample.gpus), sample.processes) == (1, None)


def test_a_driver_that_fails_is_not_asked_for_processes(node: Node) -> None:
    """One question is enough to know, and a driver in trouble is left alone."""
    node.answers("Failed to initialize NVML: Driver/library version mismatch\n", gpus_exit=18)
    sample = node.sample()
    assert sample.error == (
        "the NVIDIA driver was updated, but the old one is still loaded; reboot the node, or reload the nvidia modules"
    )
    assert len(node.calls()) == 1


@pytest.mark.parametrize("shell", ["dash", "busybox"], indirect=True)
@pytest.mark.parametrize("ignores", ["", "trap '' TERM"], ids=["ends on SIGTERM", "ignores SIGTERM"])
def test_an_nvidia_smi_that_hangs_is_ended_and_not_asked_again(node: Node, ignores: str) -> None:
    """A hung driver costs its node one bounded wait, with either kind of `timeout`."""
    node.install(f'{ignores}\necho $$ >"$here/pid"\nwhile :; do sleep 0.1; done')
    assert "timeout -k 2 10 nvidia-smi" in node.script
    short = "1" if node.shell == "busybox" else "0.2"
    node.script = node.script.replace("timeout -k 2 10 nvidia-smi", f"timeout -k {short} {short} nvidia-smi")
    sample = node.sample()
    assert (sample.hung, sample.gpus, sample.processes) == (True, (), None)
    assert len(node.calls()) == 1
    _wait_until_ended(int((node.folder / "pid").read_text()))


def _wait_until_ended(pid: int) -> None:
    deadline = time.monotonic() + 30
    while (stat := Path(f"/proc/{pid}/stat")).exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.01)


def test_no_second_nvidia_smi_is_started_while_one_cannot_be_ended(node: Node) -> None:
    """One that sits in the kernel outlives its time-out; a node is not filled with one more at every sample."""
    node.install('sleep 60 >/dev/null 2>&1 &\necho $! >"$here/pid"\nexit 137')
    end = 'exec 8<"/proc/$$/limits"\nkill $(cat pid)\nflock 8\nexec 8<&-\n'
    node.script = f"{node.script}{node.script}{end}{node.script}{end}"
    mark = b"@@agentless = 0\n"
    samples = [Nvidia().parse(split_sections(text + mark)) for text in node.run().split(mark)[:-1]]
    assert [sample.hung for sample in samples] == [True, True, True]
    assert len(node.calls()) == 2


def test_a_program_that_reads_its_input_does_not_eat_the_script(node: Node) -> None:
    """The script itself comes over stdin."""
    node.answers(GPU + MORE)
    body = (node.folder / "nvidia-smi").read_text().split("\n", 3)[3]
    node.install(f"cat >/dev/null\n{body}")
    assert len(node.sample().gpus) == 1


def test_a_full_look_brings_the_topology_and_the_same_sample(node: Node) -> None:
    """It is asked last, and nothing of the sample depends on it."""
    node.answers(GPU + MORE, f"GPU-a, {os.getpid()}, python, 512\n", topology=TOPOLOGY)
    sample = node.sample()
    assert node.full_look() == (sample, joined({(0, 1): "NV4"}))


@pytest.mark.parametrize(("gpus_exit", "apps_exit"), [(124, 0), (9, 0), (0, 124), (0, 3)])
def test_a_driver_in_trouble_is_not_asked_for_the_topology(node: Node, gpus_exit: int, apps_exit: int) -> None:
    """After a question that hung or failed there is no further one, and what the sample says of it stays."""
    node.answers(GPU + MORE, gpus_exit=gpus_exit, apps_exit=apps_exit, topology=TOPOLOGY)
    sample = node.sample()
    assert node.full_look() == (sample, None)
    assert not [call for call in node.calls() if call.startswith("topo")]


@pytest.mark.parametrize("shell", ["dash", "busybox"], indirect=True)
def test_a_topology_that_hangs_costs_a_bounded_wait_and_no_sample(node: Node) -> None:
    """The GPUs were read before: they stay usable."""
    node.answers(GPU + MORE)
    body = (node.folder / "nvidia-smi").read_text().split("\n", 3)[3]
    node.install(f"case $1 in topo) while :; do sleep 0.1; done ;; esac\n{body}")
    short = "1" if node.shell == "busybox" else "0.2"
    assert "timeout -k 2 10 nvidia-smi topo" in FULL_LOOK
    node.script = FULL_LOOK.replace("timeout -k 2 10 nvidia-smi topo", f"timeout -k {short} {short} nvidia-smi topo")
    sample, topology = node.full_look()
    assert (len(sample.gpus), sample.processes, sample.error, topology) == (1, (), None, None)


def test_a_node_without_nvidia_smi_has_no_topology(node: Node) -> None:
    """A CPU node is asked for everything without a complaint."""
    assert node.full_look() == (GpuSample(), None)


@pytest.mark.parametrize("body", ["yes", "cat /dev/zero", "yes '0, GPU-a, '"], ids=["lines", "no newline", "rows"])
def test_what_nvidia_smi_prints_without_end_ends_on_the_node(node: Node, body: str) -> None:
    """A hundred megabytes neither travel nor are collected, and the node is told apart from one without GPUs."""
    (node.folder / "yes").symlink_to(shutil.which("yes") or "")
    node.install(f'echo $$ >"$here/pid"\nexec {body}')
    output = node.run()
    sample = Nvidia().parse(split_sections(output))
    assert len(output) < ANSWER + 1000
    assert (sample.gpus, sample.processes, sample.hung) == ((), None, False)
    assert "prints more than 256 KiB" in (sample.error or "")
    _wait_until_ended(int((node.folder / "pid").read_text()))


def test_processes_without_end_are_not_looked_up_without_end(node: Node) -> None:
    """Each costs the node a program: ten thousand of them are an answer that is not believed."""
    node.answers(GPU + MORE, "".join(f"GPU-a, {pid}, x, 1\n" for pid in range(4_000_001, 4_010_001)))
    output = node.run()
    sample = Nvidia().parse(split_sections(output))
    assert b"\n@command " not in output
    assert sample.processes is None
    assert "nvidia-smi lists more than 1024 processes" in (sample.error or "")


@pytest.mark.parametrize("shell", ["dash", "busybox"], indirect=True)
def test_one_that_sits_in_the_kernel_with_its_output_open_does_not_hold_up_the_sample(node: Node) -> None:
    """Nothing that waits for the end of a pipe waits for what cannot be ended: the pipe is left after its time."""
    node.install('sleep 60 &\necho $! >"$here/pid"\nexit 137')
    assert "timeout -k 1 14 head" in node.script
    node.script = node.script.replace("timeout -k 1 14 head", "timeout -k 1 1 head")
    node.script = f"frame=$({node.script})\nprintf '%s\\n' \"$frame\"\n"
    sample = node.sample()
    assert (sample.hung, sample.gpus, sample.processes) == (True, (), None)
    os.kill(int((node.folder / "pid").read_text()), signal.SIGKILL)


def test_only_where_a_gpu_is_in_mig_mode_its_slices_are_asked_for(node: Node) -> None:
    node.answers(GPU + MORE)
    node.run()
    asked = len(node.calls())
    node.answers(GPU + MORE.replace("Disabled", "Enabled"), base="said\n")
    out = node.run().decode()
    assert [call for call in node.calls()[asked:] if "--query" not in call] == ["-L", ""]
    assert out.index("@end 0") < out.index("@slices 0") < out.index("@table 0")
    assert out.count("said\n") == 2
