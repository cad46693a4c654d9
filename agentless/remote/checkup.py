"""The machine as `doctor` wants to know it: its distribution, login, tools, clock and folders.

Asked by `doctor` only. Output, line by line:

    os ID=ubuntu                  lines of /etc/os-release: ID, ID_LIKE, PRETTY_NAME
    init systemd                  the system was booted by systemd
    user 1000 alice               uid and name of the login
    shell /bin/bash               its login shell
    path /usr/bin:/bin            the PATH of a login without a terminal
    lacks timeout                 a program that agentless needs and PATH does not have
    flock yes                     whether there is a `flock`
    MemTotal: 528280772           KiB, as in /proc/meminfo; also MemAvailable
    cgroups v2                    v1, v2, hybrid
    kernel 6.1.0                  `uname -r`, and `machine` for `uname -m`
    NTPSynchronized=yes           as timedatectl says it
    folder 1 missing              the problem of a folder or file, by its place in the question
    now 1763980000                Unix seconds, the last line
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from agentless.model.command import Result, Section
from agentless.model.nodes.checkup import MANAGERS, Folder, Machine, Manager, Problem, System
from agentless.model.text import cut, printable
from agentless.render import Renderer

SECTION = "checkup"
ANSWER = 64 << 10
"""Bytes of the answer, of which the PATH is the largest part."""
PROGRAMS = (
    "cat", "date", "df", "grep", "head", "id", "mktemp", "rm", "sed", "sleep", "sort", "stat", "tail", "timeout", "tr",
    "uname",
)  # fmt: skip
"""What the scripts for nodes call, beside the shell, the engine and `flock`."""
_LINES = 200
_WORD = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")
"""Names that a command may contain."""
_NUMBER = re.compile(r"[0-9]{1,15}")
_PROBLEMS: Mapping[str, Problem] = {each.replace("not writable", "readonly"): each for each in get_args(Problem)}


def sections(renderer: Renderer, folders: Sequence[Folder]) -> tuple[Section, ...]:
    """The section to run on the node; it needs no root. The `folders` are those of the inventory."""
    script = renderer.script(
        "node-checkup.sh.j2",
        programs=list(PROGRAMS),
        folders=[(each.path, each.writable) for each in folders],
    )
    return (Section(SECTION, script, most=ANSWER),)


def parse(sections: Mapping[str, Result], folders: Sequence[Folder], asked: float, answered: float) -> Machine | None:
    """The machine in an answer between two moments (Unix seconds, our clock); None if it was cut off."""
    answer = sections.get(SECTION)
    lines = answer.out.split("\n")[:_LINES] if answer else []
    found: dict[str, str] = {}
    release: dict[str, str] = {}
    lacks: list[str] = []
    problems: dict[int, Problem] = {}
    for line in lines:
        key, _, value = printable(line[:4096]).partition(" ")
        match key, value.split():
            case "os", _:
                name, _, text = value.partition("=")
                release[name] = _unquoted(text)
            case "lacks", [program] if program in PROGRAMS:
                lacks.append(program)
            case "folder", [number, problem] if _NUMBER.fullmatch(number) and problem in _PROBLEMS:
                problems[int(number)] = _PROBLEMS[problem]
            case _:
                found.setdefault(key, value)
    now = found.get("now", "")
    if not _NUMBER.fullmatch(now):
        return None
    uid, _, user = found.get("user", "").partition(" ")
    return Machine(
        system=_system(release, has_systemd=found.get("init") == "systemd", is_root=uid == "0"),
        user=user if _LOGIN.fullmatch(user) else "",
        shell=cut(found.get("shell", ""), 200),
        path=cut(found.get("path", ""), 2000),
        lacks=tuple(lacks),
        has_flock={"yes": True, "no": False}.get(found.get("flock", "")),
        ahead=int(now) + 0.5 - (asked + answered) / 2,
        unsure=(answered - asked) / 2 + 0.5,
        synchronized={"NTPSynchronized=yes": True, "NTPSynchronized=no": False}.get(
            next((key for key in found if key.startswith("NTPSynchronized=")), "")
        ),
        memory=_kib(found.get("MemTotal:")),
        memory_available=_kib(found.get("MemAvailable:")),
        cgroups=_word(found.get("cgroups")),
        kernel=_word(found.get("kernel")),
        architecture=_word(found.get("machine")),
        folders=tuple(replace(each, problem=problems.get(at, "")) for at, each in enumerate(folders, 1)),
    )


def _system(release: Mapping[str, str], *, has_systemd: bool, is_root: bool) -> System:
    ids = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    names = [name for each in ids for name in (each, each.partition("-")[0])]
    manager: Manager = next((MANAGERS[name] for name in names if name in MANAGERS), "")
    return System(
        id=_word(ids[0]),
        like=tuple(_word(each) for each in ids[1:5]),
        title=cut(release.get("PRETTY_NAME", ""), 80),
        manager=manager,
        has_systemd=has_systemd,
        is_root=is_root,
    )


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return ""


def _word(text: str | None) -> str:
    return text if text and _WORD.fullmatch(text) else ""


def _kib(text: str | None) -> int | None:
    return int(text) << 10 if text and _NUMBER.fullmatch(text) else None
