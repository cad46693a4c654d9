"""The NVIDIA probe: its script in every common shell, and its parser on published and on broken output.

`data/nvidia/*.json` hold the section's output and what is to be read from it; a new driver's quirk is one more file.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.command import Result, join_sections, split_sections
from agentless.model.gpu import GpuProcess, GpuReading, GpuSample
from agentless.probes.nvidia import Nvidia

RECORDS = sorted((Path(__file__).parent / "data" / "nvidia").glob("*.json"))
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
MEMORY = ("memory_total_mib", "memory_used_mib", "memory_free_mib")
GPU = "0, GPU-a, NVIDIA H100, 550.54.15, 00000000:3B:00.0, 81559, 7, 81552, 0"
MORE = ", 0, 31, 69.53, 700.00, [N/A], 345, 2619, P0, 0, Disabled, Default"


def parse(text: str) -> GpuSample:
    return Nvidia().parse({"nvidia": Result(0, text.encode())})


# ---------------------------------------------------------------------- recorded output


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_output_is_read_as_its_record_says(path: Path) -> None:
    """Each record: every reading, who uses the GPUs, and the sentence for people."""
    record = json.loads(path.read_text())
    sample = parse("\n".join(record["output"]))
    found = {
        "gpus": [_known(gpu) for gpu in sample.gpus],
        "processes": None if sample.processes is None else [_known(process) for process in sample.processes],
        "error": sample.error,
        "hung": sample.hung,
    }
    assert record["expected"] == found


def _known(value: GpuReading | GpuProcess) -> dict[str, object]:
    return {name: field for name, field in asdict(value).items() if field is not None}


def test_a_section_that_never_came_is_no_idle_node() -> None:
    """The answer broke off before the probe's section: nothing is known, and that is said."""
    sample = Nvidia().parse({})
    assert (sample.gpus, sample.processes) == ((), None)
    assert sample.error == "the answer about its GPUs was cut off; the next sample may be whole"


# ---------------------------------------------------------------------- the script


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
        self.script = join_sections(Nvidia().sections())
        for program in ("timeout", "stat", "tr", "cat", "sleep", "flock"):
            found = shutil.which("busybox" if shell == "busybox" and program != "flock" else program)
            assert found, f"{program} is not installed"
            (folder / program).symlink_to(found)

    def answers(
        self, gpus: str, apps: str = "", *, gpus_exit: int = 0, apps_exit: int = 0, base: str = "", words: str = ""
    ) -> None:
        (self.folder / "gpus").write_text(gpus)
        (self.folder / "apps").write_text(apps)
        (self.folder / "base").write_text(base)
        (self.folder / "words").write_text(words)
        self.install(
            f'case $* in *compute-apps*) cat "$here/apps"; cat "$here/words" >&2; exit {apps_exit} ;;\n'
            f'*mig.mode*) cat "$here/gpus"; exit {gpus_exit} ;;\n'
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
        "the NVIDIA driver was updated while the old one is loaded; reboot the node, or reload the nvidia modules"
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
    deadline = time.monotonic() + 10
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


# ---------------------------------------------------------------------- any output at all

_BLANKS = st.sampled_from(["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", ""])
_NUMBER = st.integers(0, 999_999)
_WORD = st.text("abcXYZ019 ()/+é", min_size=1, max_size=12).map(str.strip).filter(bool)


Rows = tuple[list[str], list[GpuReading], list[str]]
"""Of one node: rows of GPUs, the readings in them, rows of processes."""


def _uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


@st.composite
def rows(draw: st.DrawFn, index: int) -> tuple[str, GpuReading]:
    """A row as nvidia-smi prints it, and the reading in it."""

    def maybe() -> tuple[str, int | None]:
        value = draw(st.none() | _NUMBER)
        return (draw(_BLANKS), None) if value is None else (str(value), value)

    def watts() -> tuple[str, float | None]:
        text, value = maybe()
        return (text, None) if value is None else (f"{text}.50", value + 0.5)

    name = ", ".join(draw(st.lists(_WORD, min_size=1, max_size=3)))
    mig = draw(st.sampled_from([("Enabled", True), ("Disabled", False), ("[N/A]", None)]))
    cells: dict[str, tuple[str, Any]] = {
        "index": (str(index), index),
        "uuid": (_uuid(index), _uuid(index)),
        "name": (name, name),
        "driver": ("550.54.15", "550.54.15"),
        "pci_bus_id": (f"00000000:{index + 1:02X}:00.0", f"0000:{index + 1:02x}:00.0"),
        **{field: maybe() for field in (*MEMORY, "utilization_pct", "memory_utilization_pct", "temperature_c")},
        "power_w": watts(),
        "power_limit_w": watts(),
        **{field: maybe() for field in ("fan_pct", "clock_sm_mhz", "clock_memory_mhz")},
        "pstate": ("P8", "P8"),
        "ecc_uncorrected": maybe(),
        "mig": mig,
        "compute_mode": ("Default", "Default"),
    }
    row = ", ".join(text for text, _ in cells.values())
    return row, GpuReading(**{field: value for field, (_, value) in cells.items()})


@st.composite
def nodes(draw: st.DrawFn) -> Rows:
    """One to four GPUs, and up to three processes on them."""
    count = draw(st.integers(1, 4))
    table = [draw(rows(index)) for index in range(count)]
    apps = [
        f"{_uuid(draw(st.integers(0, count - 1)))}, {4000 + n}, {draw(_WORD)}, {draw(_NUMBER)}"
        for n in range(draw(st.integers(0, 3)))
    ]
    return [row for row, _ in table], [reading for _, reading in table], apps


def output(gpus: list[str], apps: list[str]) -> str:
    listed = "".join(f">{line}\n" for app in apps for line in app.split("\n"))
    return "\n".join(gpus) + f"\n\n@gpus 0\n{listed}@end 0\n\n"


def section(text: str) -> bytes:
    return f"@@agentless nvidia\n{text}\n@@agentless = 0\n".encode()


@given(nodes())
def test_what_nvidia_smi_prints_is_what_is_read(given_node: Rows) -> None:
    """Every reading in its field, also behind a name with commas; every process on its GPU."""
    gpus, readings, apps = given_node
    sample = parse(output(gpus, apps))
    assert list(sample.gpus) == readings
    assert sample.processes is not None
    assert [f"{p.gpu_uuid}, {p.pid}" for p in sample.processes] == [", ".join(a.split(", ")[:2]) for a in apps]
    assert sample.error is None


@given(nodes(), st.data())
def test_a_cut_answer_says_so_and_shows_whole_rows_only(given_node: Rows, data: st.DataObject) -> None:
    """Wherever the connection breaks: rows that came whole, processes unknown, and a sentence."""
    gpus, readings, apps = given_node
    text = output(gpus, apps)
    end = data.draw(st.integers(0, text.index("@end 0") + len("@end 0") - 1))
    cut = parse(text[:end])
    assert list(cut.gpus) == readings[: len(cut.gpus)]
    assert cut.processes is None
    assert cut.error


@given(nodes(), st.data())
def test_a_cut_stream_says_so(given_node: Rows, data: st.DataObject) -> None:
    """The same for the bytes of the whole answer, marks included."""
    gpus, _, apps = given_node
    whole = section(output(gpus, apps))
    end = data.draw(st.integers(0, whole.rindex(b"@@agentless =") + len(b"@@agentless")))
    cut = Nvidia().parse(split_sections(whole[:end]))
    assert cut.processes is None
    assert cut.error


def _insert(text: str, at: int, what: str) -> str:
    return text[:at] + what + text[at:]


def _delete(text: str, at: int, _: str) -> str:
    return text[:at] + text[at + 1 :] if text[at] in ", \n." else text


_CHANGES = st.sampled_from([_insert, _delete])


@given(nodes(), _CHANGES, st.sampled_from([",", " ", "\n", ".", ", ", "WARNING: x"]), st.data())
def test_a_damaged_row_is_unknown_and_never_shifted(
    given_node: Rows,
    change: Callable[[str, int, str], str],
    what: str,
    data: st.DataObject,
) -> None:
    """One separator too many or too few anywhere: each memory reading is the true one or unknown, and no GPU is lost
    without a word."""
    gpus, readings, apps = given_node
    text = "\n".join(gpus)
    at = data.draw(st.integers(0, len(text) - 1))
    sample = parse(output(change(text, at, what).split("\n"), apps))
    true = {reading.uuid: reading for reading in readings}
    for gpu in sample.gpus:
        for field in MEMORY:
            value = getattr(gpu, field)
            assert value is None or value == getattr(true[gpu.uuid], field)
    assert sample.error or {gpu.uuid for gpu in sample.gpus} == set(true)


@given(nodes(), _CHANGES, st.sampled_from([",", " ", "\n", ", "]), st.data())
def test_a_damaged_process_list_hides_no_process(
    given_node: Rows,
    change: Callable[[str, int, str], str],
    what: str,
    data: st.DataObject,
) -> None:
    """One separator too many or too few anywhere: every process is there, or it is unknown who uses the GPUs."""
    gpus, _, apps = given_node
    text = "\n".join([*apps, f"{_uuid(0)}, 5000, python, 1"])
    at = data.draw(st.integers(0, len(text) - 1))
    sample = parse(output(gpus, change(text, at, what).split("\n")))
    assert sample.processes is None or len(sample.processes) == len(apps) + 1


_PIECES = st.sampled_from(
    [
        *(GPU, MORE, GPU + MORE, "\n", "\r\n", "@gpus 0\n", "@gpus 6\n", "@end 0\n", ">GPU-a, 1, x, 2\n", ">[N/A]\n"),
        *(
            "@owner 1 0 root\n",
            "@cgroup 1",
            "@",
            ">",
            ", ",
            "[GPU is lost]",
            "No devices were found\n",
            "\0",
            "9" * 5000,
        ),
        *("Failed to initialize NVML: {0}\n", "the device handle for GPU {x}: Y\n"),
        'Field "{" is not a valid field to query',
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=8)).map(lambda parts: "".join(parts).encode("utf-8", "replace"))


@given(_TEXTS | st.binary())
def test_any_bytes_make_a_sample_without_invented_memory(stdout: bytes) -> None:
    """Nothing is raised, and a memory value stands in the output as it is."""
    sample = Nvidia().parse({"nvidia": Result(0, stdout)})
    for gpu in sample.gpus:
        for field in MEMORY:
            value = getattr(gpu, field)
            assert value is None or str(value).encode() in stdout
