"""Which processes on a GPU belong to a desktop, and do not keep tasks from it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from agentless.model.nodes.gpu import GpuProcess, GpuReading
from agentless.model.nodes.node import ForeignPolicy
from agentless.model.text import program_of
from agentless.model.units import format_size, short_size


def sorted_processes(
    processes: Iterable[GpuProcess], policy: ForeignPolicy
) -> tuple[tuple[GpuProcess, ...], tuple[GpuProcess, ...], str]:
    """The processes of one GPU that belong to a desktop, the others, and why programs of a desktop are among these.

    The first of the others is the one to blame: one that is no program of a desktop, else the largest.
    """
    every = tuple(processes)
    desktop, why = desktop_processes(every, policy)
    others = tuple(each for each in every if each not in desktop)
    if not why:
        return desktop, others, ""
    strangers = tuple(each for each in others if not is_listed(each, policy))
    programs = sorted((each for each in others if each not in strangers), key=_size, reverse=True)
    return (), (*strangers, *programs), "" if strangers else why


def desktop_processes(processes: Iterable[GpuProcess], policy: ForeignPolicy) -> tuple[tuple[GpuProcess, ...], str]:
    """The processes of one GPU that belong to a desktop; or none of them, and why not, in words.

    A process chooses its own name. So all that have a listed one count together, and only while they use less memory
    than a desktop does. What runs in a container is a workload, however it is called. Who runs a process and in which
    container is looked up together: without the one, the other is not known.
    """
    found = tuple(each for each in processes if is_listed(each, policy))
    if any(each.user is None for each in found):
        return (), "who runs a desktop program, and in which container, is not known"
    sizes = [each.memory_mib for each in found]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return (), "the GPU memory of a desktop program is not known"
    if found and sum(known) << 20 >= policy.below:
        used = sum(known) << 20
        words = f"desktop programs use {format_size(used)} of GPU memory"
        return (), f"{words}; to run tasks beside them, set {_enough(used)} for the node in the inventory"
    return found, ""


def why_unexplained(reading: GpuReading, policy: ForeignPolicy) -> str:
    """Why nobody knows who uses a GPU that seems idle: more memory than a desktop's is in use. Empty if it is not."""
    used = (reading.unexplained_mib or 0) << 20
    if used < policy.below:
        return ""
    return (
        f"{format_size(used)} of its memory are in use by no process that its driver lists, as by Vulkan or OpenGL; to "
        f"run tasks beside it, set {_enough(used)} for the node in the inventory"
    )


def _enough(used: int) -> str:
    return f"'foreign: {{below: {short_size(1 << used.bit_length())}}}'"


def is_listed(process: GpuProcess, policy: ForeignPolicy) -> bool:
    """Whether a process, as far as its name and its container tell, is a program of a desktop."""
    return process.container is None and program(process) in policy.ignore


def program(process: GpuProcess) -> str:
    """The file name of a program, as the driver reports its path: `Xorg`. Browsers have their arguments behind it."""
    return program_of(process.name or "")


def desktop_words(processes: Iterable[GpuProcess]) -> str:
    """Desktop processes in words: `kwin_wayland (25 MiB), Xorg (4 MiB)`."""
    return ", ".join(
        program(each) + ("" if each.memory_mib is None else f" ({format_size(each.memory_mib << 20)})")
        for each in sorted(processes, key=lambda each: -(each.memory_mib or 0))
    )


def _size(process: GpuProcess) -> float:
    """Its GPU memory; one whose memory is not known is the largest."""
    return math.inf if process.memory_mib is None else process.memory_mib
