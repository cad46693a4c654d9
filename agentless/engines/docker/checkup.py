"""The engine as `doctor` wants to know it.

Output of `docker-checkup.sh.j2`, line by line:

    program /usr/bin/docker       the engine's command, and `sudo` before it; nothing behind the word: not on PATH
    elsewhere /snap/bin/docker    where a command is that is not on PATH
    podman                        there is a podman, too
    socket yes no /run/docker.sock    whether there is a socket, and whether the login may write to it
    socketowner root:docker 660
    rootless                      by its place, the socket is of the login's own engine
    info {"ID":…}                 the answer to `info` as JSON, and complaints
    df /dev/sda1 … 41 % /         a line of `df -Pk` for the folder of the engine
    root /var/lib/docker          that folder
    network yes                   whether the network of the inventory is there
    pull …                        what a pull of an image that does not exist says, and `code` with its exit code

Nothing here is trusted: values are cut, and what makes no sense is left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal

from agentless.engines.docker.commands import Commands
from agentless.formats.json_answers import first_json, mapping
from agentless.model.command import Result, Section
from agentless.model.nodes.checkup import Disk, EngineCheckup, Socket
from agentless.model.text import cut, printable

SECTION = "engine.checkup"
ANSWER = 96 << 10
"""Bytes of the answer: `info` of an engine with many plugins and devices has 20 KB."""
PULL_WITHIN = 5
"""Seconds for a registry to answer."""
_DENIED = re.compile(r"permission denied", re.IGNORECASE)
_SUDO = re.compile(r"sudo: |sudoers|not allowed to execute", re.IGNORECASE)
_DOWN = re.compile(
    r"Cannot connect to the Docker daemon|failed to connect to the docker API|error during connect|"
    r"Is the docker daemon running|connection refused|no such file or directory",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"no such host|i/o timeout|connection refused|network is unreachable|no route to host|Client\.Timeout|"
    r"deadline exceeded|TLS handshake|x509|proxyconnect|server misbehaving|connection reset|EOF",
    re.IGNORECASE,
)
_TIMED_OUT = frozenset({"124", "137", "143"})
_HUB = "docker.io"
_BUILT_IN = frozenset({"host", "none", "bridge", "default", "private", "slirp4netns", "pasta"})
"""Networks that are there without having been created."""


def registry_of(image: str | None) -> str:
    """The registry of an image's name."""
    first, slash, _ = (image or "").partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _HUB


def _network(name: str | None) -> str:
    """The network of the inventory, empty if it is none that somebody has to create."""
    return "" if not name or ":" in name or name in _BUILT_IN else name


def section(commands: Commands) -> Section:
    """The section to run on the node."""
    words = commands.node.docker
    programs = [word for word in words[: 2 if words[0].rpartition("/")[2] == "sudo" else 1] if not word.startswith("-")]
    hosts = [word for word in words if word.startswith("unix://")]
    hosts += [word.partition("=")[2] for word in words if word.startswith(("--host=unix://", "DOCKER_HOST=unix://"))]
    script = commands.text(
        "docker-checkup.sh.j2",
        programs=programs,
        socket=(hosts[0] if hosts else "") if commands.dialect.is_docker else None,
        root_key="DockerRootDir" if commands.dialect.is_docker else "graphRoot",
        registry=registry_of(commands.node.image),
        network=_network(commands.node.network) or None,
        pull_within=PULL_WITHIN,
    )
    return Section(SECTION, script, most=ANSWER)


def parse(commands: Commands, sections: Mapping[str, Result]) -> EngineCheckup | None:
    """The engine in an answer; None if it was cut off."""
    answer = sections.get(SECTION)
    if answer is None:
        return None
    found: dict[str, list[str]] = defaultdict(list)
    for line in answer.out.split("\n"):
        key, _, value = line.partition(" ")
        if len(found[key]) < 2000:
            found[key].append(value)
    programs = found["program"]
    answer, around = first_json("\n".join(found["info"]))
    fields = mapping(answer)
    errors = fields.get("ServerErrors")
    words = "; ".join(map(str, errors)) if isinstance(errors, list) and errors else ""
    # Docker 28 complains beside its answer, in which nothing is said of the engine.
    if not words and not (fields.get("ServerVersion") or fields.get("host")):
        words = " ".join(around.split()) or "no answer to info"
    pulled = found["pull"]
    code = pulled[-1].removeprefix("code ") if pulled else ""
    said = " ".join(pulled[:-1])
    return EngineCheckup(
        program=cut(printable(programs[-1]), 300) if programs and all(programs) else None,
        elsewhere=cut(printable(" ".join(found["elsewhere"][:1])), 300),
        socket=_socket(found),
        fault=_fault(words),
        words=cut(printable(words), 300),
        disk=_disk(found),
        driver=_driver(fields, is_docker=commands.dialect.is_docker),
        registry=registry_of(commands.node.image),
        network=_network(commands.node.network),
        has_network={"yes": True, "no": False}.get("".join(found["network"][:1])),
        rootless="rootless" in found,
        has_podman="podman" in found,
        unreachable=_unreachable(said) or ("no answer" if code in _TIMED_OUT else None),
    )


def _fault(words: str) -> Literal["", "denied", "sudo", "down", "other"]:
    if not words:
        return ""
    if _SUDO.search(words):
        return "sudo"
    if _DENIED.search(words):
        return "denied"
    return "down" if _DOWN.search(words) else "other"


def _unreachable(said: str) -> str | None:
    """Why a registry was not reached: the cause at the end of a chain, without addresses of no meaning here."""
    causes = list(_UNREACHABLE.finditer(said))
    if not causes:
        return None
    looked_up = re.search(r"lookup ([A-Za-z0-9.-]{1,100})", said)
    cause = causes[-1][0]
    return f"its name {looked_up[1]} cannot be looked up ({cause})" if looked_up else cause


def _driver(fields: Mapping[str, Any], *, is_docker: bool) -> str:
    """The driver of its storage."""
    store = fields.get("store")
    return _word(fields.get("Driver") if is_docker else store.get("graphDriverName") if isinstance(store, dict) else "")


def _word(value: object) -> str:
    return cut(printable(str(value or "")), 100)


def _socket(found: Mapping[str, list[str]]) -> Socket | None:
    if not found["socket"]:
        return None
    seen, may, path = (*found["socket"][0].split(" ", 2), "", "", "")[:3]
    owner = cut(printable(" ".join(found["socketowner"][:1])), 100)
    return Socket(cut(printable(path), 300), seen == "yes", may == "yes", owner)


def _disk(found: Mapping[str, list[str]]) -> Disk | None:
    words = found["df"][0].split() if found["df"] else []
    numbers = [int(word) for word in words[1:4] if word.isdecimal() and len(word) < 18]
    if len(numbers) < 3 or not found["root"]:
        return None
    return Disk(cut(printable(found["root"][0]), 300), numbers[0] << 10, numbers[2] << 10)
