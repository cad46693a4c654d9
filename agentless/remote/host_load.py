"""How busy the machine is, read from /proc and /sys beside the samples of its GPUs.

Output, line by line:

    up 12345.67 98765.43                         /proc/uptime: seconds since the boot
    cpu  4705 150 1120 16250 520 30 45 0 0 0     /proc/stat: ticks of all cores
    load 0.52 0.58 0.59 3/602 27451              /proc/loadavg
    total 528280772                              KiB, MemTotal and
    available 412345678                          MemAvailable in /proc/meminfo
    temperature 54000                            thousandths of a degree: the hottest sensor
    net eth0 2750125988 5193040                  a physical interface, bytes received and sent since the boot
    disk 4096 64504416 18915705                  bytes of a block, blocks, free blocks

The files are described in the kernel's Documentation/filesystems/proc.rst, hwmon/sysfs-interface.rst and
ABI/testing/sysfs-class-net-statistics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentless.model.command import Result, Section
from agentless.model.nodes.host_load import Disk, HostLoad
from agentless.remote.host_facts import MOST_MEMORY_MIB
from agentless.render import Renderer

SECTION = "load"
DISK_EVERY = 15
"""The disk is asked for with every so many samples of the GPUs: every 30 s."""
_ANSWER = 64 << 10
_LINES = 512
"""Lines of the answer: one for each network interface, and some."""
_LINE = 400
_INTERFACE = 64
_WHOLE = re.compile(r"[0-9]{1,20}")
_DECIMAL = re.compile(r"[0-9]{1,10}\.[0-9]{1,6}")
_IDLE = slice(3, 5)  # idle, and idle while a disk is waited for
_TICKS = 8  # the two after these are part of the first two
# What is above these is no reading.
_MOST_CELSIUS = 150
_MOST_LOAD = 1e6
_MOST_DISK = 1 << 60
_MOST_RATE = 1e12


@dataclass(frozen=True, slots=True)
class HostReading:
    """What an answer has. `busy` and `ticks` are of all cores, `net` has bytes received and sent by interface.

    `disk` has the bytes in use and in all.
    """

    up: float | None = None
    ticks: int | None = None
    busy: int | None = None
    load: tuple[float, float, float] | None = None
    memory_mib: int | None = None
    available_mib: int | None = None
    temperature_c: int | None = None
    net: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    disk: tuple[int, int] | None = None


def section(renderer: Renderer, root: str) -> Section:
    """The section to run on the node; it needs no root. `root` is the folder whose disk is asked for."""
    return Section(SECTION, renderer.script("host-load.sh.j2", root=root, disk_every=DISK_EVERY), _ANSWER)


def parse(sections: Mapping[str, Result]) -> HostReading | None:
    """The reading in the answer, None without one. What makes no sense is left out, never an exception."""
    answer = sections.get(SECTION)
    if answer is None:
        return None
    found: dict[str, list[str]] = {}
    net: dict[str, tuple[int, int]] = {}
    lines = answer.out.split("\n")
    for line in lines if len(lines) <= _LINES else ():
        key, *words = (line.split() if len(line) <= _LINE else ()) or ("",)
        if key != "net":
            found.setdefault(key, words)
        elif len(words) == 3 and len(words[0]) <= _INTERFACE and (counters := _whole(words[1:])):
            net[words[0]] = counters[0], counters[1]
    ticks = _whole(found.get("cpu", ())[:_TICKS])
    return HostReading(
        up=next(iter(_decimals(found.get("up", ()))), None),
        ticks=sum(ticks) if len(ticks) > _IDLE.start else None,
        busy=sum(ticks) - sum(ticks[_IDLE]) if len(ticks) > _IDLE.start else None,
        load=_load(_decimals(found.get("load", ())[:3])),
        memory_mib=_mib(found.get("total", ())),
        available_mib=_mib(found.get("available", ())),
        temperature_c=_temperature(_whole(found.get("temperature", ()))),
        net=net,
        disk=_disk(_whole(found.get("disk", ()))),
    )


def load_of(
    now: HostReading, before: HostReading | None, root: str, cores: int | None, last: HostLoad | None
) -> HostLoad:
    """How busy the machine is by two readings of it. `last` has the disk as it was asked for last.

    A counter that went back, as after a reboot, makes an unknown rate; so does an interface that came or went.
    """
    span = now.up - before.up if before and now.up is not None and before.up is not None else 0.0
    before = before if before and span > 0 else None
    received, sent = (sum(each) for each in zip(*now.net.values(), strict=True)) if now.net else (None, None)
    disk = Disk(root, now.disk[0] >> 20, now.disk[1] >> 20) if now.disk else last and last.disk
    known = now.memory_mib is not None and now.available_mib is not None and now.available_mib <= now.memory_mib
    return HostLoad(
        cores_busy=_cores_busy(now, before, cores),
        load=now.load,
        memory_used_mib=(now.memory_mib or 0) - (now.available_mib or 0) if known else None,
        memory_available_mib=now.available_mib if known else None,
        disk=disk if disk and disk.path == root else None,
        temperature_c=now.temperature_c,
        received_bytes=received,
        sent_bytes=sent,
        network_in_bytes_per_second=_rate(now, before, span, 0),
        network_out_bytes_per_second=_rate(now, before, span, 1),
    )


def _cores_busy(now: HostReading, before: HostReading | None, cores: int | None) -> float | None:
    if not before or not cores or None in (now.ticks, now.busy, before.ticks, before.busy):
        return None
    ticks, busy = (now.ticks or 0) - (before.ticks or 0), (now.busy or 0) - (before.busy or 0)
    return round(cores * busy / ticks, 2) if 0 <= busy <= ticks and ticks > 0 else None


def _rate(now: HostReading, before: HostReading | None, span: float, way: int) -> float | None:
    """Bytes a second of all interfaces."""
    if not before or not now.net or now.net.keys() != before.net.keys():
        return None
    moved = [counters[way] - before.net[name][way] for name, counters in now.net.items()]
    return round(sum(moved) / span, 1) if min(moved) >= 0 and sum(moved) / span <= _MOST_RATE else None


def _whole(words: Sequence[str]) -> tuple[int, ...]:
    """The numbers, none if one of them is not whole."""
    return tuple(map(int, words)) if all(map(_WHOLE.fullmatch, words)) else ()


def _decimals(words: Sequence[str]) -> tuple[float, ...]:
    return tuple(map(float, words)) if all(map(_DECIMAL.fullmatch, words)) else ()


def _load(averages: Sequence[float]) -> tuple[float, float, float] | None:
    if len(averages) != 3 or max(averages) > _MOST_LOAD:
        return None
    return averages[0], averages[1], averages[2]


def _mib(words: Sequence[str]) -> int | None:
    match _whole(words):
        case (kib,) if kib <= MOST_MEMORY_MIB << 10:
            return kib >> 10
    return None


def _temperature(numbers: Sequence[int]) -> int | None:
    match numbers:
        case (thousandths,) if thousandths <= _MOST_CELSIUS * 1000:
            return round(thousandths / 1000)
    return None


def _disk(numbers: Sequence[int]) -> tuple[int, int] | None:
    match numbers:
        case (size, blocks, free) if free <= blocks and 0 < size * blocks <= _MOST_DISK:
            return size * (blocks - free), size * blocks
    return None
