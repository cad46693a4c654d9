"""What can be chosen from a list in a field of the forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agentless.client.client import Client
from agentless.client.words import free_in_words
from agentless.errors import AgentlessError, UsageError
from agentless.model.scheduling.needs import is_slice_type, parse_target
from agentless.model.text import enumerated
from agentless.model.units import counted
from agentless.rules.submit.options import OPTIONS
from agentless.tui.data.cluster import ClusterState, Row, is_vps, natural

ASKED = "image", "container"
"""The fields for whose lists the controller is asked."""
_MOST_NODES = 8
"""Nodes that are asked for their images."""
_MOST_TASKS = 200
_COMMAS = {"requires", "after_batch", "gpu_type", "notify", "retry_on", "overflow"}
_VENDORS = ("NVIDIA ", "AMD ")


class Pick(NamedTuple):
    """A value, and what is known of it."""

    value: str
    about: str = ""


def separator(name: str) -> str:
    """What separates the values of a field; empty for a field with one value."""
    return "," if name in _COMMAS else " " if name in OPTIONS and OPTIONS[name].many else ""


def typed_last(name: str, text: str) -> tuple[str, str]:
    """The text of a field before the value that is being typed, and that value."""
    sign = separator(name)
    at = text.rfind(sign) + 1 if sign else 0
    return text[:at], text[at:].strip()


def has_picks(name: str) -> bool:
    """Whether a field has a list."""
    return name in OPTIONS and bool(OPTIONS[name].choices or OPTIONS[name].completes or name in ("image", "gpu_type"))


def picks(name: str, cluster: ClusterState, answers: Mapping[str, Sequence[Row]]) -> list[Pick]:
    """The list of a field; `answers` are those of `ask`."""
    if choices := OPTIONS[name].choices:
        return [Pick(choice) for choice in choices]
    if name == "image":
        return list(_images(cluster, answers))
    if name == "gpu_type":
        return list(_gpu_types(cluster))
    return list(_LISTS[OPTIONS[name].completes or ""](cluster, answers))


def ask(name: str, client: Client, cluster: ClusterState, values: Mapping[str, str]) -> Iterator[tuple[str, list[Row]]]:
    """Ask the controller for what a list needs: the envs, or the images of the nodes that the form names."""
    if name == "container":
        yield "envs", client.get("/v1/envs")
        return
    for node in _meant(cluster, values):
        try:
            yield node, client.get(f"/v1/nodes/{node}/images")
        except AgentlessError:
            continue  # it does not answer, or runs no containers


def _meant(cluster: ClusterState, values: Mapping[str, str]) -> list[str]:
    """The nodes that the fields name, else those that answer."""
    named = values.get("node", "").split()
    for target in values.get("target", "").split():
        try:
            named += parse_target(target).nodes
        except UsageError:
            continue
    answering = [node["name"] for node in cluster.ordered_nodes() if not cluster.is_silent(node["name"])]
    return [name for name in answering if name in named or not named][:_MOST_NODES]


def _images(cluster: ClusterState, answers: Mapping[str, Sequence[Row]]) -> Iterator[Pick]:
    used: dict[str, int] = {}
    for task in cluster.tasks.values():
        if task["image"] and not task.get("env"):
            used[task["image"]] = used.get(task["image"], 0) + 1
    on: dict[str, list[str]] = {}
    for node, images in answers.items():
        for image in images if node != "envs" else ():
            on.setdefault(image["name"], []).append(node)
    for name in sorted(used, key=lambda name: (-used[name], name)):
        where = f"; on {enumerated(on[name])}" if name in on else ""
        yield Pick(name, f"{counted(used[name], 'task')}{where}")
    for name in sorted(on.keys() - used.keys()):
        yield Pick(name, f"on {enumerated(on[name])}")


def _gpu_types(cluster: ClusterState) -> Iterator[Pick]:
    found: dict[str, list[Row]] = {}
    for gpu in cluster.whole_gpus():
        name = gpu["name"] or ""
        for vendor in _VENDORS:
            name = name.removeprefix(vendor)
        if name:
            found.setdefault(name, []).append(gpu)
    for each in cluster.slices():
        if is_slice_type(each["profile"]):
            found.setdefault(each["profile"], []).append(each)
    for name in sorted(found, key=natural):
        free = sum(gpu["state"] == "free" for gpu in found[name])
        noun = found[name][0].get("kind", "GPU").replace("gpu", "GPU")
        yield Pick(name, f"{free} of {counted(len(found[name]), noun)} free")
    for each in cluster.ordered_clusters():
        for kind, total in each["gpus"].items():
            if kind:
                yield Pick(kind, f"{counted(total, 'GPU')} of {each['name']}")


def _nodes(cluster: ClusterState, _: Mapping[str, Sequence[Row]]) -> Iterator[Pick]:
    states: dict[str, list[str]] = {}
    for gpu in cluster.gpus.values():
        states.setdefault(gpu["node"], []).append(gpu["state"])
    for node in cluster.ordered_nodes():
        found = states.get(node["name"], [])
        yield Pick(node["name"], f"{node['state']}, {found.count('free')} of {counted(len(found), 'GPU')} free")
    yield from _clusters(cluster, _)


def _clusters(cluster: ClusterState, _: Mapping[str, Sequence[Row]]) -> Iterator[Pick]:
    for each in cluster.ordered_clusters():
        yield Pick(each["name"], f"cluster, {each['state']}, {free_in_words(each)}")


def _envs(_: ClusterState, answers: Mapping[str, Sequence[Row]]) -> Iterator[Pick]:
    for env in answers.get("envs", ()):
        versions = sorted(env["versions"], key=lambda each: -each["version"])
        current = next((each for each in versions if each["current"]), None)
        yield Pick(env["name"], f"version {env['version']}, {_kept(current)}" if current else "no version yet")
        for each in versions:
            yield Pick(f"{env['name']}:{each['version']}", _kept(each) + f"; {each['message']}" * bool(each["message"]))


def _kept(version: Row) -> str:
    return f"on {enumerated(version['nodes'])}" if version["nodes"] else "on no node that answers"


def _tasks(cluster: ClusterState, _: Mapping[str, Sequence[Row]]) -> Iterator[Pick]:
    tasks = [task for task in cluster.tasks.values() if not is_vps(task) and not task.get("foreign")]
    tasks.sort(key=lambda task: (task["ended_at"] is None, task["id"]), reverse=True)
    for task in tasks[:_MOST_TASKS]:
        yield Pick(task["id"], f"{task['state']}  {task['name'] or ' '.join(task['command'])}")


_LISTS = {"nodes": _nodes, "clusters": _clusters, "envs": _envs, "required": _tasks}
"""By what an option completes."""
