"""What `docker info` says, and which programs that are called docker answer it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentless.model.nodes.engine import Toolkit

FORMAT = "{{json .}}"
"""All of it: a field that this docker does not know would be an error in a format of its own."""

IS_PODMAN = "this docker command is podman"
IS_NERDCTL = "this docker command is nerdctl"
"""Complaints of ours: an answer that another program gave."""

_NAMES = {
    "errors": "ServerErrors",
    "version": "ServerVersion",
    "runtimes": "Runtimes",
    "memory": "MemoryLimit",
    "cpu": "CpuCfsQuota",
    "cpuset": "CPUSet",
    "cgroups": "CgroupDriver",
    "security": "SecurityOptions",
    "time": "SystemTime",
    "id": "ID",
    "root": "DockerRootDir",
    "driver": "Driver",
}
_CONTAINERD = "io.containerd.snapshotter.v1"
_KNOWS_DEVICES = 28, 2
"""The first Docker whose `info` lists the CDI devices that it has found."""
_INDEX = re.compile(r"all|[0-9:]+")
_MOST = 1000
"""CDI devices that are read: a node with 16 GPUs of 7 slices has 128, each by up to three names."""


def read(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer by our own names. One of podman or of nerdctl has `errors` that say so."""
    if isinstance(answer.get("host"), Mapping) and isinstance(answer.get("version"), Mapping):
        return {"errors": [IS_PODMAN]}
    plugins = answer.get("Plugins")
    if isinstance(plugins, Mapping) and "Storage" in plugins:
        return {"errors": [IS_NERDCTL]}
    return {**answer, **{ours: answer.get(theirs) for ours, theirs in _NAMES.items()}}


def has_containerd_store(answer: Mapping[str, Any]) -> bool:
    """Whether its images are in containerd's store."""
    status = answer.get("DriverStatus")
    return isinstance(status, list) and ["driver-type", _CONTAINERD] in status


def cgroup_version(answer: Mapping[str, Any]) -> int | None:
    """1 or 2, None if it does not say."""
    return {"1": 1, "2": 2}.get(str(answer.get("CgroupVersion")))


def is_rootless(answer: Mapping[str, Any]) -> bool:
    """Whether it runs without root."""
    security = answer.get("security")
    return isinstance(security, list) and "name=rootless" in security


def cdi_devices(answer: Mapping[str, Any]) -> frozenset[str]:
    """The CDI devices that it has found, like `nvidia.com/gpu=GPU-…`."""
    found = answer.get("DiscoveredDevices")
    devices = found[:_MOST] if isinstance(found, list) else []
    ids = [str(device.get("ID")) for device in devices if isinstance(device, Mapping) and device.get("Source") == "cdi"]
    return frozenset(name[:200] for name in ids)


def gives_by_cdi(answer: Mapping[str, Any], kit: Toolkit, lines: list[str]) -> bool:
    """Whether it hands out devices of the kind `kit.cdi` by their ids: it lists them, or it is too old to list any.

    `lines` then say which CDI files the node has.
    """
    if any(not _INDEX.fullmatch(name) for kind, _, name in _parts(cdi_devices(answer)) if kind == kit.cdi):
        return True
    version = tuple(map(int, re.findall(r"[0-9]{1,6}", str(answer.get("version")))[:2]))
    return bool(answer.get("CDISpecDirs")) and version < _KNOWS_DEVICES and any(f"cdi {kit.cdi} " in x for x in lines)


def is_desktop(answer: Mapping[str, Any]) -> bool:
    """Whether it is Docker Desktop."""
    return str(answer.get("OperatingSystem")) == "Docker Desktop"


def note(answer: Mapping[str, Any]) -> str:
    """What is known of a Docker that runs in a virtual machine. Empty if nothing is."""
    colima = re.match(r"colima\b", str(answer.get("Name")))
    machine = "Docker Desktop" if is_desktop(answer) else "Colima" if colima else ""
    if not machine:
        return ""
    return f"in the virtual machine of {machine}: its containers see the devices and files of that machine"


def _parts(devices: frozenset[str]) -> list[tuple[str, str, str]]:
    return [device.partition("=") for device in devices]
