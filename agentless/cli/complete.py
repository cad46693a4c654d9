"""Shell completion. It asks a controller that runs and never starts one: a Tab must not wait."""

from __future__ import annotations

from typing import Any

from agentless import paths
from agentless.client import Client
from agentless.errors import AgentlessError


def _ask(path: str, **query: object) -> list[dict[str, Any]]:
    client = Client(paths.state_dir(), None)
    try:
        return client.get(path, **query) if client.is_running() else []
    except AgentlessError:
        return []


def tasks(incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of live tasks, each with its command."""
    found = []
    for task in _ask("/v1/tasks"):
        words = f"{task['state']} on {task['target']}: {' '.join(task['command'])[:40]}"
        found += [(word, words) for word in (task["id"], task["name"]) if word and word.startswith(incomplete)]
    return found


def nodes(incomplete: str) -> list[tuple[str, str]]:
    """Node names, each with its state."""
    found = _ask("/v1/nodes")
    return [
        (n["name"], f"{n['state']}, {n['gpus_free']} of {n['gpus']} GPUs free")
        for n in found
        if n["name"].startswith(incomplete)
    ]


def envs(incomplete: str) -> list[tuple[str, str]]:
    """Names of envs and, after a colon, their versions."""
    found = []
    for env in _ask("/v1/envs"):
        found.append((env["name"], f"version {env['version']}" if env["version"] else "no version yet"))
        if incomplete.startswith(f"{env['name']}:"):
            found += [(f"{env['name']}:{v['version']}", v["message"] or v["at"]) for v in env["versions"]]
    return [each for each in found if each[0].startswith(incomplete)]


def reservations(incomplete: str) -> list[tuple[str, str]]:
    """Ids of reservations, each with what it is for."""
    found = _ask("/v1/reservations")
    return [
        (r["id"], f"{r['node']} for {r['owner'] or 'maintenance'}") for r in found if r["id"].startswith(incomplete)
    ]


def targets(incomplete: str) -> list[tuple[str, str]]:
    """Nodes, and after `::` their free GPUs."""
    node, colons, _ = incomplete.partition("::")
    if not colons:
        return nodes(incomplete)
    free = [gpu for gpu in _ask("/v1/gpus") if gpu["node"] == node and gpu["state"] == "free"]
    return [(f"{node}::{gpu['index']}", f"{gpu['name']}, free") for gpu in free]


def places(incomplete: str) -> list[tuple[str, str]]:
    """Nodes and tasks, as the beginning of a path there; what is after the colon only they know."""
    if ":" in incomplete or "/" in incomplete:
        return []
    return [(f"{word}:", words) for word, words in (*nodes(incomplete), *tasks(incomplete))]


def volumes(incomplete: str) -> list[tuple[str, str]]:
    """Volumes, each with its node."""
    found = _ask("/v1/volumes", sizes=False)
    return [(each["name"], f"on {each['node']}") for each in found if each["name"].startswith(incomplete)]
