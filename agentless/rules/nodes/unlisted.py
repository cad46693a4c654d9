"""GPUs whose driver does not list the processes on them: nobody knows when they are free, but somebody may say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.nodes.gpu import GpuProcess, GpuReading, Platform
from agentless.model.nodes.node import ForeignPolicy, NodeConfig
from agentless.rules.nodes.desktop import is_listed

_UNLISTED: Mapping[Platform, str] = {
    "wsl": "WSL2 does not list what uses it, also in Windows",
    "jetson": "the driver of a Jetson does not list what uses it",
}


def assumed(reading: GpuReading, config: NodeConfig) -> str:
    """Why nobody knows who uses a GPU that the inventory says to take for free. Empty for any other."""
    return _UNLISTED[reading.unlisted] if reading.unlisted in config.assume_free else ""


def why_unlisted(reading: GpuReading, config: NodeConfig) -> str:
    """Why nobody knows who uses a GPU, and what an administrator may say to it. Empty if it is known, or was said."""
    if not reading.unlisted or assumed(reading, config):
        return ""
    key = f"'{reading.unlisted}: {{assume: free}}'"
    return f"{_UNLISTED[reading.unlisted]}; if only tasks use it, set {key} for the node in the inventory"


def vouched_processes(
    processes: Iterable[GpuProcess], policy: ForeignPolicy
) -> tuple[tuple[GpuProcess, ...], tuple[GpuProcess, ...]]:
    """Of a GPU that the inventory says to take for free: processes of its desktop, and those that are known not to be.

    Memory is not known there, and most processes have no name; these are neither.
    """
    named = [each for each in processes if each.name]
    desktop = tuple(each for each in named if is_listed(each, policy))
    return desktop, tuple(each for each in named if each not in desktop)
