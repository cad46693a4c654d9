"""Other engines on the same node: how they see the claims of a task that they did not start.

Everybody can read the control groups of a process. A container of ours is in a group whose name is its claim:

    agentless_claim.ALONE.LIMIT.FLOOR.OWNER.GPU.GPU      `templates/claims/groups.sh.j2` reads it

A GPU is the first eight digits of its UUID, because a name has at most 255 bytes; part of one is `GPU_PART` behind it,
with eight digits each. The task is not in the name, since an empty group stays when its container is removed: each
owner and set of GPUs has one group, which is used again. The name has no `-`, which in systemd would be a slice within
another one, and no `:`, which runc refuses.

An engine without root can often make no such group. Then only the engine itself knows what its containers claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentless.engines.dialect import Dialect
from agentless.engines.docker.dialect import DOCKER
from agentless.model.command import Result, Section
from agentless.model.containers.claim import terms_of
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.task import Placement, Task
from agentless.render import Renderer

SECTION = "engines"
UNSEEN = 81
"""The exit code of a launch if some claims on the node cannot be seen."""

_LONGEST = 180
"""Bytes of a name of ours. The engine adds a prefix and a suffix, and all together may have 255."""
_PARENT = re.compile(r"[A-Za-z0-9_./\\-]{1,60}")


@dataclass(frozen=True, slots=True)
class Dockerd:
    """A Docker engine that runs on a node: its user, its command line, and its own control group."""

    uid: str
    words: tuple[str, ...]
    parent: str | None

    @property
    def group(self) -> str | None:
        """The control group for its containers, None if it is not set."""
        return next(_values(self.words, "--cgroup-parent"), self.parent)

    def listens(self, host: str) -> bool:
        """Whether it listens at this address; empty: the default one."""
        hosts = _hosts(self.words)
        usual = ("fd://", "unix:///var/run/docker.sock", "unix:///run/docker.sock")
        return host in hosts if host else not hosts or any(each in usual for each in hosts)


def asking(node: NodeConfig, dialect: Dialect) -> dict[str, Any]:
    """The values for `rootless.sh.j2`: how to call other Docker engines, and which ones need not be asked."""
    words = list(node.docker) if dialect.is_docker else ["docker"]
    last = next((n for n, word in enumerate(words) if word.rpartition("/")[2] == "docker"), len(words) - 1)
    own = _hosts(words)[:1] if dialect.is_docker else []
    return {
        "asker": words[: last + 1],
        "asked_format": DOCKER.formats.live,
        "accepted": list(node.accept_engines),
        "own": own,
        # What sudo runs may not have our environment.
        "own_env": dialect.is_docker and not own and words[0].rpartition("/")[2] == "docker",
    }


def group_names(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Words of claims, each with its short form in the name of a group; in front of that of a part, that of its GPU."""
    named = dict.fromkeys(each for token in tokens for each in (token.partition("_")[0], token))
    return [(token, "_".join(map(_digits, token.split("_")))) for token in named]


def group(task: Task, placement: Placement, parent: str) -> str:
    """The control group for a task's container, within the group that its engine uses for containers."""
    owner = re.sub(r"[^A-Za-z0-9_]", "_", task.owner.replace("@", "__"))
    words = ["agentless_claim", *terms_of(task.spec.needs), owner[:40]]
    name = ".".join([*words, *(digits for _, digits in group_names(placement.claimed))])
    if len(name) > _LONGEST:
        name = ".".join([*words, "all"])
    if parent.endswith(".slice"):
        return f"{parent.removesuffix('.slice')}-{name}.slice"
    return f"{parent.rstrip('/')}/{name}"


def facts(renderer: Renderer, node: NodeConfig, dialect: Dialect) -> Section:
    """Ask which other engines run there. `dialect` is that of the node's own container engine."""
    return Section(SECTION, renderer.script("beside.sh.j2", **asking(node, dialect)))


def parent_of(node: NodeConfig, result: Result | None, driver: object, security: object) -> str | None:
    """The group that the node's own engine uses for containers, None if it cannot hold a group for a claim.

    `driver` and `security` are what `docker info` says.
    """
    rootless = isinstance(security, list) and "name=rootless" in security
    usual = {"cgroupfs": "/docker", "systemd": "user.slice" if rootless else "system.slice"}.get(str(driver))
    if usual is None or result is None:
        return None
    lines = [line.partition("|") for line in result.out.splitlines()]
    usually = next((words for kind, _, words in lines if kind == "host"), "")
    host = next(iter(_hosts(node.docker)), usually)
    found = [each for each in _dockerds(lines) if (each.uid != "0") == rootless]
    ours = found if len(found) == 1 else [each for each in found if each.listens(host)]
    written = ours[0].group if len(ours) == 1 else None
    if written is None:
        return usual
    fits = (
        _PARENT.fullmatch(written)
        and ".." not in written
        and (driver != "systemd" or re.fullmatch(r"[^/]+\.slice", written))
    )
    return written if fits else None


def holder(name: str) -> str:
    """The holder of a GPU: a task, or a container of another engine, since its group does not name the task."""
    return f"{name} (in another engine)" if re.fullmatch(r"container [0-9a-f]{12}", name) else f"task {name}"


def unseen(node: NodeConfig, words: str) -> str | None:
    """The sentence with the fix if an answer has lines `unseen|USER|PID`: claims of that user cannot be seen."""
    found = [line.split("|") for line in words.splitlines() if line.startswith("unseen|")]
    if not found:
        return None
    _, user, pid, *_ = [*found[0], "", ""]
    if not user:
        return (
            f"/proc on {node.name} hides the processes of other users (hidepid), so GPUs held by other engines are "
            "unknown; mount /proc without hidepid, log in as root, or set accept_engines: [all] in the inventory"
        )
    return (
        f"{user} runs a Docker engine on {node.name} (process {pid}), and {node.user or 'your login'} cannot see "
        f"which GPUs it uses; log in as root, or set accept_engines: [{user}] in the inventory"
    )


def _digits(uuid: str) -> str:
    return re.sub(r"^[A-Z]+-|[^0-9A-Za-z]", "", uuid)[:8]


def _dockerds(lines: Sequence[tuple[str, str, str]]) -> Iterator[Dockerd]:
    uid: str | None = None
    words: list[str] = []
    parent = None
    for kind, _, rest in (*lines, ("dockerd", "|", "")):
        if kind == "dockerd":
            if uid is not None:
                yield Dockerd(uid, tuple(words), parent)
            uid, words, parent = rest, [], None
        elif kind == "word":
            words.append(rest)
        elif kind == "parent":
            parent = rest


def _hosts(words: Sequence[str]) -> list[str]:
    return [*_values(words, "--host"), *_values(words, "-H")]


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """The values of an option among the words of a command."""
    for n, word in enumerate(words):
        if word == option:
            yield from words[n + 1 : n + 2]
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")
        elif len(option) == 2 and word.startswith(option):
            yield word.removeprefix(option)
