"""NVIDIA GPUs and who uses them, asked through `nvidia-smi`, which comes with every driver.

One section, since a driver that hangs must not be asked a second time. Its output, line by line:

    0, GPU-5d1c…, NVIDIA A100…     a row of `nvidia-smi --query-gpu`, or whatever else it says
    @gpus 0                        its exit code; `none` where there is no nvidia-smi; the end when it failed
    @wsl                           only in WSL2
    >GPU-5d1c…, 4711, python, 512  a line of `nvidia-smi --query-compute-apps`
    @owner 4711 1000 alice         who runs that process,
    @command 4711 python train.py  its command line
    @cgroup 4711 0::/system.slice/docker-….scope      and each of its control groups
    @end 0                         the second exit code, and proof that nothing was cut off

Where a GPU is in MIG mode, more lines follow, see `mig.py`.

Columns are named in `nvidia-smi --help-query-gpu` and `--help-query-compute-apps`, exit codes in its man page under
"Return value". A process is looked up with shell built-ins and one `tr`, its owner with one `stat` for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from agentless.gpus.nvidia import faults, mig
from agentless.gpus.nvidia.lines import ANSWERED, until
from agentless.gpus.nvidia.platforms import on_platform, platform_of
from agentless.gpus.owners import Owner, owners
from agentless.gpus.values import CELSIUS, MHZ, MIB, WATTS, WHOLE, whole
from agentless.model.command import SECTION, Result, Section
from agentless.model.nodes.gpu import MOST_GPUS, GpuProcess, GpuReading, GpuSample, pci_bus_id
from agentless.model.text import cut, printable
from agentless.ports import ScriptRenderer

VENDOR = "nvidia"
PROCESSES = 1024
"""Processes on the GPUs of a node: 16 GPUs with 60 clients of MPS each have fewer. Each is looked up on the node."""
ANSWER = 256 << 10
"""Bytes of one answer of nvidia-smi, which leave its pipe: a line for each process has about 150."""
_LINES = 20_000
"""Lines of the section: of each process its own, its owner's, its command and up to 16 control groups."""
_LINE = 500
"""Characters of a line that are looked at: a GPU's has 200. What searches a line takes time by its length, squared."""
_MAX_MESSAGES = 84
"""Lines beside the rows that are looked at: one for each GPU that is lost, and 20 more."""

# What every driver knows; one that refuses a newer field is asked for these.
_BASE = "index,uuid,name,driver_version,pci.bus_id,memory.total,memory.used,memory.free,utilization.gpu"
_FIELDS = (
    f"{_BASE},utilization.memory,temperature.gpu,power.draw,power.limit,fan.speed,clocks.sm,clocks.mem,pstate,"
    "ecc.errors.uncorrected.volatile.total,mig.mode.current,compute_mode"
)
_COLUMNS, _BASE_COLUMNS = _FIELDS.count(",") + 1, _BASE.count(",") + 1

_HUNG = frozenset({"124", "137", "143"})
"""`timeout` ended it: as coreutils says so, after -k, and as busybox says so."""
_HANGS = "nvidia-smi did not answer within 10 s: the driver hangs; check dmesg on the node, and reboot it"
_PIPE_CLOSED = "141"
"""By SIGPIPE: it had more to say than it may."""
_CUT_OFF = "the GPU sample was cut off; agentless retries with the next sample"
_LOOK = "check nvidia-smi on the node"
_TOO_LONG = f"nvidia-smi prints more than {ANSWER >> 10} KiB; {_LOOK}"
_WSL = "@wsl"
_NO_DEVICES = "No devices were found"

_REFUSED = re.compile(r'Field "(.*?)" is not a valid field to query')
_MISMATCH = re.compile(r"Driver/library version mismatch")
_COMPLAINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        _MISMATCH,
        "the NVIDIA driver was updated, but the old one is still loaded; reboot the node, or reload the nvidia modules",
    ),
    (
        re.compile(r"couldn't communicate with the NVIDIA driver"),
        "the NVIDIA driver is not loaded; reboot the node, or reinstall the driver for its kernel",
    ),
    (
        re.compile(r"couldn't find libnvidia-ml"),
        "nvidia-smi cannot find libnvidia-ml.so; reinstall the NVIDIA driver on the node",
    ),
    (
        re.compile(r"Failed to initialize NVML: Insufficient Permissions"),
        (
            "the login user cannot access /dev/nvidia*; add it to the group of these files on the node "
            "(often video or render)"
        ),
    ),
    (
        re.compile(r"Failed to initialize NVML: (.+)"),
        "the NVIDIA driver does not work ({}); reboot the node, or reinstall the driver",
    ),
    (
        re.compile(r"the device handle for GPU ?(.+?)(?:: [A-Z].*)?$", re.MULTILINE),
        (
            "GPU {} does not answer and may have fallen off the bus; reboot the node, and check the card, "
            "its power and cooling"
        ),
    ),
    (_REFUSED, "the NVIDIA driver on the node is too old: it does not know {}; update it"),
    (
        re.compile(r"timeout: .*(?:not found|No such file)"),
        "timeout not found on the node; install coreutils there",
    ),
)

_LOST = re.compile(r"the device handle for GPU.*?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_GPU_ROW = re.compile(r"[0-9]+, |\[")
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_UUID = re.compile(r"(?!(?:all|none|void|[0-9]+)\Z)[A-Za-z0-9-]+")
"""Not what stands for other GPUs in a request to an engine."""
_WHOLE_UUID = re.compile(r"(?:GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WATTS = re.compile(r"[0-9]{1,6}(?:\.[0-9]+)?")
_FAN = 200  # per cent; the driver's documentation says that it may exceed 100
_NAME = 64
"""Characters of a name, of a GPU, a driver, a program or a user, that are shown."""
_PSTATE = re.compile(r"P[0-9]{1,2}")
_UNAVAILABLE = re.compile(r"\[.*\]|N/A|ERR!|")
_DEAD = frozenset({"[GPU requires reset]", "[GPU is lost]"})
_MIG = {"Enabled": True, "Disabled": False}
_NO_MIG = frozenset({"", "[N/A]", "N/A", "[Not Supported]"})
"""What a GPU says that has no such mode, or a driver that does not know it."""
_COMPUTE_MODES = frozenset({"Default", "Exclusive_Thread", "Exclusive_Process", "Prohibited"})
_LISTER = "nvidia-smi -L"
_BY_MODE = "(change it with: nvidia-smi -c DEFAULT)"


def sections(renderer: ScriptRenderer, *, topology: bool = False) -> tuple[Section, ...]:
    """One section, two with `topology`; no root is needed, and one short program per process that uses a GPU."""
    script = renderer.script(
        "nvidia-probe.sh.j2",
        fields=_FIELDS,
        base_fields=_BASE,
        answer=ANSWER,
        processes=PROCESSES,
        topology=topology,
    )
    return (Section(VENDOR, script), *(faults.sections(renderer) if topology else ()))


def parse(sections: Mapping[str, Result]) -> GpuSample:
    """The sample in the answer, `error` in one sentence. Where anything is amiss, processes are not known."""
    answer = sections.get(VENDOR)
    if answer is None:
        return _silent(_CUT_OFF)
    if len(answer.stdout) >= SECTION or answer.stdout.count(b"\n") > _LINES:
        return _silent(_TOO_LONG)
    lines = [line.rstrip("\r")[:_LINE] for line in answer.out.split("\n")]
    said, code, rest = until(lines, "@gpus ")
    if code == "none":
        return GpuSample()
    rows, messages = _sorted(said)
    if len(rows) > MOST_GPUS:
        return _silent(f"nvidia-smi lists more than {MOST_GPUS} GPUs; {_LOOK}")
    if len(answer.stdout.partition(b"\n@gpus ")[0]) >= ANSWER:
        return _silent(_TOO_LONG)
    gpus, error = _gpus(rows, messages, code)
    lost = tuple(bus for text in _LOST.findall("\n".join(messages)) if (bus := pci_bus_id(text))) if error else ()
    if code not in ANSWERED:
        known = () if not gpus and error is None else None
        mismatch = any(map(_MISMATCH.search, messages))
        gpus, _ = mig.with_slices(gpus, ())
        return GpuSample(gpus, known, error, code in _HUNG, lost, _LISTER, mismatch)
    platform = platform_of(gpus, is_wsl=_WSL in rest[:1])
    said, code, rest = until(rest, "@end ")
    divided = None
    if any(gpu.mig for gpu in gpus):
        gpus, divided = mig.with_slices(gpus, rest)
    processes, unknown = _processes(said, code, {gpu.uuid for gpu in gpus})
    if processes and any(gpu.mig for gpu in gpus):
        gpus, processes = mig.told_apart(gpus, processes, rest)
    if platform and code is not None and code not in _HUNG:
        processes, unknown = processes or (), None
    return on_platform(GpuSample(gpus, processes, error or unknown or divided, code in _HUNG, lost, _LISTER), platform)


def _silent(error: str) -> GpuSample:
    return GpuSample((), None, error)


def _sorted(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The rows about GPUs, each once, and the first of the other lines."""
    rows: dict[str, None] = {}
    messages: list[str] = []
    for line in filter(None, lines):
        if _GPU_ROW.match(line) or line.count(", ") >= _BASE_COLUMNS - 1:
            rows[line] = None
        elif len(messages) < _MAX_MESSAGES:
            messages.append(line)
    return list(rows), messages


def _gpus(rows: Sequence[str], messages: Sequence[str], code: str | None) -> tuple[tuple[GpuReading, ...], str | None]:
    if not rows and messages == [_NO_DEVICES] and code in ("0", "6"):
        return (), None
    columns = _COLUMNS
    if rows and any(_REFUSED.search(line) for line in messages):  # the second question was answered
        columns = _BASE_COLUMNS
        messages = [line for line in messages if not _REFUSED.search(line)]
    found = [_gpu(row, columns) for row in rows]
    gpus = tuple(gpu for gpu, _ in found if gpu)
    error = _complaint(messages, code) or next((problem for _, problem in found if problem), None)
    if len({gpu.index for gpu in gpus}) < len(gpus) or len({gpu.uuid for gpu in gpus}) < len(gpus):
        gpus, error = (), error or f"nvidia-smi lists a GPU twice with different readings; {_LOOK}"
    return gpus, error or (None if rows else f"nvidia-smi lists no GPU; {_LOOK}")


@lru_cache(maxsize=4096)
def _gpu(row: str, columns: int) -> tuple[GpuReading | None, str | None]:
    """The GPU in a row and what is wrong with it. What might have slipped into another column is not read at all."""
    cells = row.split(", ")
    surplus = len(cells) - columns
    # Only a name may hold commas; if it is another cell, the UUID is cut or the bus id is out of place.
    if surplus > 0 and _WHOLE_UUID.fullmatch(cells[1]):
        cells[2 : 3 + surplus] = [", ".join(cells[2 : 3 + surplus])]
    if len(cells) < 3 or not _INDEX.fullmatch(cells[0]) or not _UUID.fullmatch(cells[1]):
        return None, "nvidia-smi cannot read one of the GPUs; check dmesg on the node, and reboot it"
    index, uuid = int(cells[0]), cells[1]
    bus = pci_bus_id(cells[4]) if len(cells) == columns else None
    in_place = bus or (surplus == 0 and _UNAVAILABLE.fullmatch(cells[4]))
    if not in_place or row.count("GPU-") > 1:  # two, where two rows ran together
        return GpuReading(index, uuid, vendor=VENDOR), f"nvidia-smi prints a damaged line about GPU {index}; {_LOOK}"
    identity = (index, uuid, _known(cells[2]), _known(cells[3]), bus)
    if not _DEAD.isdisjoint(cells):
        reset = f"reboot the node or, as root, run nvidia-smi -r -i {index} there"
        return GpuReading(*identity, needs_reset=True, vendor=VENDOR), f"GPU {index} needs a reset; {reset}"
    cells += [""] * (_COLUMNS - columns)
    total = whole(cells[5], MIB)
    reading = GpuReading(
        *identity,
        memory_total_mib=total,
        memory_used_mib=whole(cells[6], MIB if total is None else total),
        memory_free_mib=whole(cells[7], MIB if total is None else total),
        utilization_pct=whole(cells[8], 100),
        memory_utilization_pct=whole(cells[9], 100),
        temperature_c=whole(cells[10], CELSIUS),
        power_w=_watts(cells[11]),
        power_limit_w=_watts(cells[12]),
        fan_pct=whole(cells[13], _FAN),
        clock_sm_mhz=whole(cells[14], MHZ),
        clock_memory_mhz=whole(cells[15], MHZ),
        pstate=cells[16] if _PSTATE.fullmatch(cells[16]) else None,
        ecc_uncorrected=whole(cells[17]),
        mig=_MIG.get(cells[18]),
        compute_mode=cells[19] if cells[19] in _COMPUTE_MODES else None,
        vendor=VENDOR,
    )
    if reading.mig is None and cells[18] not in _NO_MIG:
        return replace(reading, barred="its MIG mode cannot be read; check nvidia-smi -q on the node"), None
    return in_its_mode(reading), None


def in_its_mode(reading: GpuReading) -> GpuReading:
    """The reading with what its modes mean for tasks, in words."""
    if reading.compute_mode == "Prohibited":
        return replace(reading, barred=f"its compute mode prohibits compute processes {_BY_MODE}")
    if reading.compute_mode in ("Exclusive_Process", "Exclusive_Thread"):
        return replace(reading, solo=f"its compute mode allows only one process {_BY_MODE}")
    return reading


def _processes(
    lines: Sequence[str], code: str | None, uuids: Collection[str]
) -> tuple[tuple[GpuProcess, ...] | None, str | None]:
    """Who uses the GPUs; None and why as soon as one line leaves a doubt: a GPU may be in use then."""
    rows: list[str] = []
    messages: list[str] = []
    for line in lines:
        if line.startswith(">"):
            (rows if ", " in line or line[1:2] == "[" else messages).append(line[1:])
    if error := _complaint(messages[:_MAX_MESSAGES], code):
        return None, error
    if len(rows) > PROCESSES:
        return None, f"nvidia-smi lists more than {PROCESSES} processes, the limit of agentless; {_LOOK}"
    who = owners(lines)
    processes: list[GpuProcess] = []
    for row in rows:
        uuid, pid, rest = (*row.split(", ", 2), "", "")[:3]
        if uuid not in uuids or not WHOLE.fullmatch(pid) or any(other in rest for other in uuids):
            hidden = f"nvidia-smi does not show the processes on the GPUs ({_printable(row)[:80]})"
            return None, f"{hidden}; {_LOOK}"
        owner = who.get(pid, Owner())
        processes.append(_process(row, owner.user, owner.command, owner.container))
    return tuple(processes), None


@lru_cache(maxsize=4096)
def _process(row: str, user: str | None, command: str | None, container: str | None) -> GpuProcess:
    uuid, pid, *rest = row.split(", ")
    return GpuProcess(
        uuid,
        int(pid),
        name=_known(", ".join(rest[:-1])),
        memory_mib=whole(rest[-1], MIB) if len(rest) > 1 else None,
        user=user,
        command=command,
        container=container,
    )


def _complaint(messages: Sequence[str], code: str | None) -> str | None:
    """What nvidia-smi said beside its rows, as a sentence with the fix; None for a warning beside a good answer."""
    if code in _HUNG:
        return _HANGS
    if code == _PIPE_CLOSED:
        return _TOO_LONG
    text = "\n".join(messages)
    for pattern, sentence in _COMPLAINTS if text else ():
        if match := pattern.search(text):
            return sentence.format(*(_printable(group) for group in match.groups()))
    if code is None:
        return _CUT_OFF
    if code in ANSWERED:
        return None
    return f"nvidia-smi ended with exit code {code} ({_printable(text) or 'no output'}); {_LOOK}"


def _known(cell: str) -> str | None:
    return None if _UNAVAILABLE.fullmatch(cell) else _name(cell)


def _name(text: str) -> str:
    return cut(_printable(text), _NAME)


def _printable(text: str) -> str:
    return printable(cut(text, 200)).strip()


def _watts(cell: str) -> float | None:
    value = float(cell) if _WATTS.fullmatch(cell) else None
    return None if value is None or value > WATTS else value
