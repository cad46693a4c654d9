"""Shell completion. It asks a running controller and never starts one: a Tab must not wait."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer

from agentless import paths
from agentless.client.client import Client
from agentless.client.words import gpu_number
from agentless.errors import AgentlessError
from agentless.model.units import counted

_WORD = re.compile(r"[\w@%+=:,./][\w@%+=:,./-]*")
"""A word that is safe on a command line: a shell inserts it unquoted."""
_UNSAFE = re.compile(r"[^\w@%+=:,./ ()-]+")
"""Characters to drop from a description: some completion scripts pass it to `eval`, and typer reads markup."""

_ENDS = {"completed": "with exit code 0", "failed": "in a failure", "ended": "in any way"}
"""The ends of a task that can be required."""

_Found = list[tuple[str, str]]


def _offered(found: Iterable[tuple[str | None, str]], incomplete: str) -> _Found:
    """Candidates that continue what was typed, and are safe to insert: other users choose the names."""
    return [
        (word, _UNSAFE.sub(" ", words))
        for word, words in found
        if word and word.startswith(incomplete) and _WORD.fullmatch(word)
    ]


def _ask(path: str, **query: object) -> list[dict[str, Any]]:
    return _answer(path, **query) or []


def _answer(path: str, **query: object) -> Any:
    try:
        client = Client(paths.state_dir(), None)
        return client.get(path, **query) if client.is_running() else None
    except AgentlessError:
        return None


def tasks(incomplete: str) -> _Found:
    """Ids and names of live tasks, each with its command."""
    found: list[tuple[str | None, str]] = []
    for task in _ask("/v1/tasks"):
        words = f"{task['state']} on {task['target']}: {' '.join(task['command'])[:40]}"
        found += [(word, words) for word in (task["id"], task["name"])]
    return _offered(found, incomplete)


def required(incomplete: str) -> _Found:
    """Tasks, also after a comma, and after a colon the ends that can be required."""
    others, comma, last = incomplete.rpartition(",")
    task, colon, _ = last.partition(":")
    found = _offered(((f"{task}:{end}", words) for end, words in _ENDS.items()), last) if colon else tasks(last)
    return [(others + comma + word, words) for word, words in found if word not in others.split(",")]


def nodes(incomplete: str) -> _Found:
    """Node names, each with its state."""
    found = _ask("/v1/nodes")
    return _offered(
        ((n["name"], f"{n['state']}, {n['gpus_free']} of {counted(n['gpus'], 'GPU')} free") for n in found), incomplete
    )


def clusters(incomplete: str) -> _Found:
    """Names of clusters, each with its state."""
    return _offered(((each["name"], f"cluster, {each['state']}") for each in _ask("/v1/clusters")), incomplete)


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
    """Nodes and clusters, and after `::` the free GPUs of a node."""
    node, colons, _ = incomplete.partition("::")
    if not colons:
        return [*nodes(incomplete), *clusters(incomplete)]
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
    return _workflows(_ask("/v1/workflows"), incomplete)


def live_workflows(incomplete: str) -> _Found:
    """Those that have not ended."""
    return _workflows((each for each in _ask("/v1/workflows") if each["ended_at"] is None), incomplete)


def jobs(context: typer.Context, incomplete: str) -> _Found:
    """The jobs of the workflow that was typed before, each with its state."""
    # While the value of an option is typed, its arguments have not been given their names.
    workflow = context.params.get("workflow") or next(iter(context.args), "")
    if not workflow or "/" in workflow:
        return []
    found: dict[str, str] = {}
    for job in (_answer(f"/v1/workflows/{workflow}") or {"jobs": ()})["jobs"]:
        found.setdefault(job["job"], job["task"]["state"])
    typed = context.params.get("jobs") or ()
    return _offered(((job, state) for job, state in found.items() if job not in typed), incomplete)


def _workflows(found: Iterable[dict[str, Any]], incomplete: str) -> _Found:
    every = [(each, f"{each['name']}: {each['state']}") for each in found]
    names = {each["name"]: f"{each['state']}, newest of this name" for each, _ in reversed(every)}
    return _offered([*((each["id"], words) for each, words in every), *names.items()], incomplete)
