"""The NVIDIA probe's parser on published output, on broken output, and on any output at all.

`data/nvidia/*.json` hold the section's output and what is to be read from it; a new driver's quirk is one more file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentless.gpus.nvidia.probe import in_its_mode
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Result, split_sections
from agentless.model.nodes.gpu import GpuProcess, GpuReading, GpuSample
from tests.pure.build import cluster, seen

RECORDS = sorted((Path(__file__).parent / "data" / "nvidia").glob("*.json"))
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault of the parser."""
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
        **({"lost": list(sample.lost)} if sample.lost else {}),
    }
    assert record["expected"] == found


def _known(value: GpuReading | GpuProcess) -> dict[str, object]:
    fields = {name: field for name, field in asdict(value).items() if field is not None}
    assert fields.pop("vendor", "nvidia") == "nvidia"
    usual = {"barred": fields.get("barred"), "solo": fields.get("solo"), "unified": False, "removable": False}
    usual |= {"kind": "gpu", "profile": "", "divided": False}
    return {name: field for name, field in fields.items() if field not in ("", usual.get(name, ""))}


def test_a_section_that_never_came_is_no_idle_node() -> None:
    """The answer broke off before the probe's section: nothing is known, and that is said."""
    sample = Nvidia().parse({})
    assert (sample.gpus, sample.processes) == ((), None)
    assert sample.error == "the GPU sample was cut off; agentless retries with the next sample"


# ---------------------------------------------------------------------- what no GPU has

ABSURD = {
    "utilization_pct": ("101", "-1", "100.5", "999999999999999999"),
    "memory_utilization_pct": ("101", "-3"),
    "temperature_c": ("201", "-40", "4000"),
    "power_w": ("20000.01", "-70.00", "999999.00"),
    "power_limit_w": ("99999", "-1"),
    "clock_sm_mhz": ("100001", "-1"),
    "clock_memory_mhz": ("2619000", "-1"),
    "fan_pct": ("201", "-1"),
    "memory_total_mib": ("4194305", "-1", "999999999999"),
    "memory_used_mib": ("81560", "-7"),
    "memory_free_mib": ("81560", "-7"),
}
"""By field readings that no GPU has, like more memory used than there is."""
ORDER = (
    *("index", "uuid", "name", "driver", "pci_bus_id", *MEMORY, "utilization_pct", "memory_utilization_pct"),
    *("temperature_c", "power_w", "power_limit_w", "fan_pct", "clock_sm_mhz", "clock_memory_mhz"),
)


@pytest.mark.parametrize(("field", "text"), [(field, text) for field, texts in ABSURD.items() for text in texts])
def test_a_reading_that_no_gpu_has_is_unknown_and_the_others_stay(field: str, text: str) -> None:
    """It gets on no screen, and who counts with it is told that it is not known."""
    cells = (GPU + MORE).split(", ")
    (true,) = parse(f"{GPU + MORE}\n@gpus 0\n@end 0\n").gpus
    cells[ORDER.index(field)] = text
    (found,) = parse(f"{', '.join(cells)}\n@gpus 0\n@end 0\n").gpus
    assert asdict(true) | {field: None} == asdict(found)


@pytest.mark.parametrize("text", ["[N/A]", "4194305", "-1"])
def test_a_gpu_whose_memory_is_unbelievable_is_not_given_away(text: str) -> None:
    """As one whose memory is not known at all."""
    cells = (GPU + MORE).split(", ")
    cells[ORDER.index("memory_total_mib")] = text
    sample = parse(f"{', '.join(cells)}\n@gpus 0\n@end 0\n")
    (gpu,) = cluster(seen(sample=sample)).nodes["node1"].gpus
    assert (gpu.state, gpu.reason) == ("unknown", "cannot read its memory")


@pytest.mark.parametrize("uuid", ["all", "0", "none", "12345678"])
def test_what_stands_for_other_gpus_in_a_request_is_no_uuid(uuid: str) -> None:
    cells = (GPU + MORE).split(", ")
    cells[ORDER.index("uuid")] = uuid
    assert parse(f"{', '.join(cells)}\n@gpus 0\n@end 0\n").gpus == ()


def test_long_names_are_cut() -> None:
    """Of a GPU, its driver, a program and the user whose it is."""
    long = "N" * 200
    row = f"0, GPU-a, {long[:150]}, {long[:150]}, 00000000:3B:00.0, 81559, 7, 81552, 0{MORE}"
    sample = parse(f"{row}\n@gpus 0\n>GPU-a, 1, {long}, 5\n@owner 1 1000 {long}\n@command 1 {long}{long}\n@end 0\n")
    (gpu,) = sample.gpus
    assert sample.processes
    (process,) = sample.processes
    names = {gpu.name, gpu.driver, process.name, process.user}
    assert names == {"N" * 63 + "…"}
    assert process.command == "N" * 199 + "…"


# ---------------------------------------------------------------------- any output at all

_BLANKS = st.sampled_from(["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", ""])
_NUMBER = st.integers(0, 999_999)
_PERCENT = st.integers(0, 100)
_WORD = st.text("abcXYZ019 ()/+é", min_size=1, max_size=12).map(str.strip).filter(bool)


Rows = tuple[list[str], list[GpuReading], list[str]]
"""Of one node: rows of GPUs, the readings in them, rows of processes."""


def _uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


@st.composite
def rows(draw: st.DrawFn, index: int) -> tuple[str, GpuReading]:
    """A row as nvidia-smi prints it, and the reading in it."""

    def maybe(number: st.SearchStrategy[int] = _NUMBER) -> tuple[str, int | None]:
        value = draw(st.none() | number)
        return (draw(_BLANKS), None) if value is None else (str(value), value)

    def watts() -> tuple[str, float | None]:
        text, value = maybe(st.integers(0, 2000))
        return (text, None) if value is None else (f"{text}.50", value + 0.5)

    name = ", ".join(draw(st.lists(_WORD, min_size=1, max_size=3)))
    total = maybe()
    part = _NUMBER if total[1] is None else st.integers(0, total[1])
    mig = draw(st.sampled_from([("Disabled", False), ("[N/A]", None)]))  # for "Enabled", see test_mig
    cells: dict[str, tuple[str, Any]] = {
        "index": (str(index), index),
        "uuid": (_uuid(index), _uuid(index)),
        "name": (name, name),
        "driver": ("550.54.15", "550.54.15"),
        "pci_bus_id": (f"00000000:{index + 1:02X}:00.0", f"0000:{index + 1:02x}:00.0"),
        **dict(zip(MEMORY, (total, maybe(part), maybe(part)), strict=True)),
        **{field: maybe(_PERCENT) for field in ("utilization_pct", "memory_utilization_pct", "temperature_c")},
        "power_w": watts(),
        "power_limit_w": watts(),
        **{field: maybe(_PERCENT) for field in ("fan_pct", "clock_sm_mhz", "clock_memory_mhz")},
        "pstate": ("P8", "P8"),
        "ecc_uncorrected": maybe(),
        "mig": mig,
        "compute_mode": ("Default", "Default"),
    }
    row = ", ".join(text for text, _ in cells.values())
    return row, in_its_mode(GpuReading(**{field: value for field, (_, value) in cells.items()}, vendor="nvidia"))


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


@PATIENT
@given(nodes())
def test_what_nvidia_smi_prints_is_what_is_read(given_node: Rows) -> None:
    """Every reading in its field, also behind a name with commas; every process on its GPU."""
    gpus, readings, apps = given_node
    sample = parse(output(gpus, apps))
    assert list(sample.gpus) == readings
    assert sample.processes is not None
    assert [f"{p.gpu_uuid}, {p.pid}" for p in sample.processes] == [", ".join(a.split(", ")[:2]) for a in apps]
    assert sample.error is None


@PATIENT
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


@PATIENT
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


@PATIENT
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


@PATIENT
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


@PATIENT
@given(_TEXTS | st.binary())
def test_any_bytes_make_a_sample_without_invented_memory(stdout: bytes) -> None:
    """Nothing is raised, and a memory value stands in the output as it is."""
    sample = Nvidia().parse({"nvidia": Result(0, stdout)})
    for gpu in sample.gpus:
        for field in MEMORY:
            value = getattr(gpu, field)
            assert value is None or str(value).encode() in stdout


@pytest.mark.parametrize(
    ("free", "total", "used", "unused"),
    [(5, 100, 10, 5), (5, None, None, 5), (None, 100, 10, 90), (None, None, 10, None), (None, 100, None, None)],
)
def test_memory_that_nobody_uses_is_what_the_driver_says_or_what_is_left(
    free: int | None, total: int | None, used: int | None, unused: int | None
) -> None:
    found = GpuReading(0, "GPU-0", memory_total_mib=total, memory_used_mib=used, memory_free_mib=free)
    assert found.memory_unused_mib == unused
