"""Shell completion. It asks a running controller and never starts one: a Tab must not wait."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from agentless import paths
from agentless.client.client import Client
from agentless.client.words import gpu_number
from agentless.errors import AgentlessError
from agentless.model.units import counted

_WORD = re.compile(r"[\w@%+=:,./][\w@%+=:,./-]*")
"""A word that is safe on a command line: a shell inserts it unquoted."""
_UNSAFE = re.compile(r"[^\w@%+=:,./ ()-]+")
"""Characters to drop from a description: some completion scripts pass it to `eval`, and typer reads markup."""

_Found = list[tuple[str, str]]


def _offered(found: Iterable[tuple[str | None, str]], incomplete: str) -> _Found:
    """Candidates that continue what was typed, and are safe to insert: other users choose the names."""
    return [
        (word, _UNSAFE.sub(" ", words))
        for word, words in found
        if word and word.startswith(incomplete) and _WORD.fullmatch(word)
    ]


def _ask(path: str, **query: object) -> list[dict[str, Any]]:
    try:
        client = Client(paths.state_dir(), None)
        return client.get(path, **query) if client.is_running() else []
    except AgentlessError:
        return []


def tasks(incomplete: str) -> _Found:
    """Ids and names of live tasks, each with its command."""
    found: list[tuple[str | None, str]] = []
    for task in _ask("/v1/tasks"):
        words = f"{task['state']} on {task['target']}: {' '.join(task['command'])[:40]}"
        found += [(word, words) for word in (task["id"], task["name"])]
    return _offered(found, incomplete)


def nodes(incomplete: str) -> _Found:
    """Node names, each with its state."""
    found = _ask("/v1/nodes")
    return _offered(
        ((n["name"], f"{n['state']}, {n['gpus_free']} of {counted(n['gpus'], 'GPU')} free") for n in found), incomplete
    )


def envs(incomplete: str) -> _Found:
    """Names of envs and, after a colon, their versions."""
    found: list[tuple[str | None, str]] = []
    for env in _ask("/v1/envs"):
        found.append((env["name"], f"version {env['version']}" if env["version"] else "no version yet"))
        if incomplete.startswith(f"{env['name']}:"):
            found += [(f"{env['name']}:{v['version']}", v["message"] or v["at"]) for v in env["versions"]]
    return _offered(found, incomplete)


def reservations(incomplete: str) -> _Found:
    """Ids of reservations, each with what it is for."""
    found = _ask("/v1/reservations")
    return _offered(((r["id"], f"{r['node']} for {r['owner'] or 'maintenance'}") for r in found), incomplete)


def targets(incomplete: str) -> _Found:
    """Nodes, and after `::` their free GPUs."""
    node, colons, _ = incomplete.partition("::")
    if not colons:
        return nodes(incomplete)
    free = [gpu for gpu in _ask("/v1/gpus") if gpu["node"] == node and gpu["state"] == "free"]
    return _offered(((f"{node}::{gpu_number(gpu)}", f"{gpu['name']}, free") for gpu in free), "")


def places(incomplete: str) -> _Found:
    """Nodes and tasks, as the first part of a path; what follows the colon is not completed."""
    if ":" in incomplete or "/" in incomplete:
        return []
    return [(f"{word}:", words) for word, words in (*nodes(incomplete), *tasks(incomplete))]


def vps(incomplete: str) -> _Found:
    """VPS, each with its state."""
    return _offered(((each["name"], each["state"]) for each in _ask("/v1/vps")), incomplete)


def volumes(incomplete: str) -> _Found:
    """Volumes, each with its node."""
    found = _ask("/v1/volumes", sizes=False)
    return _offered(((each["name"], f"on {each['node']}") for each in found), incomplete)


def workflows(incomplete: str) -> _Found:
    """Ids and names of workflows, each with its state."""
    found = [(word, each["state"]) for each in _ask("/v1/workflows") for word in (each["id"], each["name"])]
    return _offered(found, incomplete)
