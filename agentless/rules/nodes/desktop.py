"""Which processes on a GPU belong to a desktop, and do not keep tasks from it."""

from __future__ import annotations

from collections.abc import Iterable

from agentless.model.nodes.gpu import GpuProcess
from agentless.model.nodes.node import ForeignPolicy
from agentless.model.text import program_of
from agentless.model.units import format_size


def desktop_processes(processes: Iterable[GpuProcess], policy: ForeignPolicy) -> tuple[tuple[GpuProcess, ...], str]:
    """The processes of one GPU that belong to a desktop; or none of them, and why not, in words.

    A process chooses its own name. So all that have a listed one count together, and only while they use less memory
    than a desktop does. What runs in a container is a workload, however it is called.
    """
    found = tuple(each for each in processes if each.container is None and program(each) in policy.ignore)
    sizes = [each.memory_mib for each in found]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return (), "the GPU memory of a desktop program is not known"
    if found and sum(known) << 20 >= policy.below:
        used, limit = format_size(sum(known) << 20), format_size(policy.below)
        return (), f"desktop programs use {used} of GPU memory; they are ignored below {limit}"
    return found, ""


def program(process: GpuProcess) -> str:
    """The file name of a program, as the driver reports its path: `Xorg`. Browsers have their arguments behind it."""
    return program_of(process.name or "")


def desktop_words(processes: Iterable[GpuProcess]) -> str:
    """Desktop processes in words: `kwin_wayland (25 MiB), Xorg (4 MiB)`."""
    return ", ".join(
        program(each) + ("" if each.memory_mib is None else f" ({format_size(each.memory_mib << 20)})")
        for each in sorted(processes, key=lambda each: -(each.memory_mib or 0))
    )
