"""Slices of NVIDIA GPUs in MIG mode: which there are, how full they are, and who uses them.

No query of nvidia-smi lists slices, so the probe prints two of its answers for people where a GPU is in MIG mode:

      MIG 1g.10gb     Device  2: (UUID: MIG-5d1c…)         a line of `nvidia-smi -L`, below its GPU
    @slices 0                                              its exit code
    |  0    9   0   2  |      9MiB /  9984MiB    | 16 …    GPU, GPU instance, compute instance and number of a slice
    |    0    9    0      4711      C   python   512MiB |  GPU, instances and PID of a process: a line of `nvidia-smi`
    @table 0                                               its exit code

`--query-compute-apps` names the GPU of a process, and only the table its instances. Of a process that cannot be told
apart, all slices of its GPU are unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentless.gpus.nvidia.lines import ANSWERED, until
from agentless.gpus.values import MIB
from agentless.model.nodes.gpu import GpuProcess, GpuReading

MOST = 16
"""Slices of a GPU: today's have seven."""
_GPU = re.compile(r"GPU ([0-9]{1,4}): .*\(UUID: ([A-Za-z0-9-]{1,80})\)")
_SLICE = re.compile(r" +MIG (\S{1,32}) +Device +([0-9]{1,3}): \(UUID: (\S{1,100})\)")
_PROFILE = re.compile(r"[0-9]{1,2}[cg]\.[0-9a-z.+-]{1,24}")
_UUID = re.compile(r"MIG-[0-9a-zA-Z]{8}(?:-[0-9a-zA-Z]{4}){3}-[0-9a-zA-Z]{12}")
_OLD_UUID = re.compile(r"MIG-GPU-\S+/[0-9]+/[0-9]+")
_MEMORY = re.compile(
    r"\| +([0-9]{1,4}) +([0-9]{1,5}) +([0-9]{1,5}) +([0-9]{1,3}) +\| *([0-9]{1,9})MiB */ *([0-9]{1,9})MiB +\|.*"
)
_PROCESS = re.compile(r"\| +([0-9]{1,4}) +([0-9]{1,5}) +([0-9]{1,5}) +([0-9]{1,18}) +[A-Z+]+ .*")
_OFF = "turn MIG mode off with: sudo nvidia-smi -i {0} -mig 0"
_UNLISTED = "in MIG mode, but nvidia-smi does not list its slices; check nvidia-smi -L on the node"
_OLD = "in MIG mode, but its driver names slices as drivers before R470 did; update the driver, or " + _OFF
_EMPTY = (
    "in MIG mode without slices; create some on the node with: sudo nvidia-smi mig -i {0} -cgi PROFILE -C "
    "(-lgip lists profiles), or " + _OFF
)


@dataclass
class _Answer:
    """What nvidia-smi says of one GPU: its slices, None if they are not known, and why its parts cannot be given.

    `memory` has the used and total MiB of a slice by its number, `numbers` those of instances, `users` instances of a
    process by its PID.
    """

    slices: dict[int, tuple[str, str]] | None = None
    wrong: str = ""
    memory: dict[int, tuple[int, int]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    users: dict[int, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))


def with_slices(gpus: Sequence[GpuReading], lines: Sequence[str]) -> tuple[tuple[GpuReading, ...], str | None]:
    """The GPUs, behind each its slices; and what is wrong. `lines` follow those of processes."""
    answers = _answers(gpus, lines)
    found: list[GpuReading] = []
    error: str | None = None
    for gpu in gpus:
        if not gpu.mig:
            found.append(gpu)
            continue
        answer = answers[gpu.index]
        if answer.slices is None:
            found.append(replace(gpu, barred=(answer.wrong or _UNLISTED).format(gpu.index)))
            error = error or f"GPU {gpu.index} is {found[-1].barred}"
        else:
            found.append(gpu if answer.slices else replace(gpu, barred=_EMPTY.format(gpu.index)))
            found += [_reading(gpu, part, answer) for part in sorted(answer.slices)]
    return tuple(found), error


def told_apart(
    gpus: Sequence[GpuReading], processes: Sequence[GpuProcess], lines: Sequence[str]
) -> tuple[tuple[GpuReading, ...], tuple[GpuProcess, ...]]:
    """The GPUs with their slices, and the processes, each on its slice.

    If it is not known on which, it stays on the GPU, and all slices of that are unknown.
    """
    divided = {gpu.uuid: gpu for gpu in gpus if gpu.mig}
    slices = {(gpu.parent, gpu.part): gpu for gpu in gpus if gpu.parent in divided}
    answers = _answers(list(divided.values()), lines)
    found: list[GpuProcess] = []
    lost: dict[str, int] = {}
    for process in processes:
        gpu = divided.get(process.gpu_uuid)
        if gpu is None:
            found.append(process)
            continue
        answer = answers[gpu.index]
        parts = {answer.numbers.get(instances) for instances in answer.users.get(process.pid, ())}
        its = [slices.get((gpu.uuid, part)) for part in parts]
        if not its or None in its:
            lost.setdefault(gpu.uuid, process.pid)
            found.append(process)
        found += [replace(process, gpu_uuid=each.uuid) for each in its if each]
    why = "nvidia-smi does not say which slice process {} uses; agentless retries with the next sample"
    barred = tuple(replace(gpu, barred=why.format(lost[gpu.parent])) if gpu.parent in lost else gpu for gpu in gpus)
    return barred, tuple(found)


def _reading(gpu: GpuReading, part: int, answer: _Answer) -> GpuReading:
    uuid, profile = (answer.slices or {})[part]
    used, total = answer.memory.get(part, (None, None))
    name = f"{gpu.name or 'GPU'} MIG {profile}"
    return GpuReading(
        gpu.index,
        uuid,
        name,
        gpu.driver,
        memory_total_mib=total,
        memory_used_mib=used,
        vendor=gpu.vendor,
        kind="slice",
        parent=gpu.uuid,
        part=part,
        profile=profile,
    )


def _answers(gpus: Sequence[GpuReading], lines: Sequence[str]) -> Mapping[int, _Answer]:
    """What is said of each GPU, by its index."""
    found = {gpu.index: _Answer() for gpu in gpus if gpu.mig}
    listed, code, rest = until(lines, "@slices ")
    if code in ANSWERED:
        _read_list({gpu.index: gpu.uuid for gpu in gpus if gpu.mig}, listed, found)
    table, code, _ = until(rest, "@table ")
    if code in ANSWERED:
        _read_table(table, found)
    return found


def _read_list(uuids: Mapping[int, str], lines: Sequence[str], found: Mapping[int, _Answer]) -> None:
    answer: _Answer | None = None
    seen: set[str] = set()
    for line in lines:
        if match := _GPU.fullmatch(line):
            index = int(match[1])
            answer = found[index] if uuids.get(index) == match[2] else None
            if answer and answer.slices is None and not answer.wrong:
                answer.slices = {}
            elif answer:
                answer.slices, answer.wrong = None, _UNLISTED
        elif answer and line.strip():
            _read_slice(line, answer, seen)


def _read_slice(line: str, answer: _Answer, seen: set[str]) -> None:
    """A line below a GPU. One that is not understood may hide a slice, so none of that GPU is known."""
    match = _SLICE.fullmatch(line)
    if match and _OLD_UUID.fullmatch(match[3]):
        answer.slices, answer.wrong = None, _OLD
    elif answer.slices is not None:
        right = match and _UUID.fullmatch(match[3]) and _PROFILE.fullmatch(match[1]) and match[3] not in seen
        if not match or not right or int(match[2]) in answer.slices or len(answer.slices) >= MOST:
            answer.slices, answer.wrong = None, _UNLISTED
        else:
            seen.add(match[3])
            answer.slices[int(match[2])] = match[3], match[1]


def _read_table(lines: Sequence[str], found: Mapping[int, _Answer]) -> None:
    twice = set[tuple[int, int]]()
    for line in lines:
        if (match := _MEMORY.fullmatch(line)) and (answer := found.get(int(match[1]))):
            part, used, total = int(match[4]), int(match[5]), int(match[6])
            if part in answer.memory or (match[2], match[3]) in answer.numbers:
                twice.add((int(match[1]), part))
            answer.numbers[match[2], match[3]] = part
            if used <= total <= MIB:
                answer.memory[part] = used, total
        elif (match := _PROCESS.fullmatch(line)) and (answer := found.get(int(match[1]))):
            answer.users[int(match[4])].add((match[2], match[3]))
    for gpu, part in twice:
        found[gpu].memory.pop(part, None)
        found[gpu].users.clear()
