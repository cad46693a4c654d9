"""Checks hosts that are in no inventory yet, by a controller of their own that ends with the check."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentless.cli.nodes.doctor import failed
from agentless.cli.nodes.host_keys import Keys, settled
from agentless.cli.setup.controller import end
from agentless.client.client import Client
from agentless.errors import AgentlessError
from agentless.model.view import ImageView
from agentless.rules.images.default_image import default_image


@dataclass(frozen=True, slots=True)
class Tried:
    """What is known of the hosts, by the names of their nodes.

    `problems` say why a host cannot run tasks, `checks` are those of doctor. `image` is a default image, which
    `has_image` have; None if there is none. `gpus` are the GPUs of those that passed.
    """

    problems: dict[str, str]
    checks: list[dict[str, Any]]
    image: str | None
    has_image: list[str]
    gpus: list[dict[str, Any]]


def try_hosts(nodes: Iterable[str], inventory: str, agree: Callable[[Keys], bool]) -> Tried:
    """Check the nodes of this inventory; `agree` is asked whether unknown host keys are the right ones."""
    with _controller(inventory) as served:
        verdicts = list(settled(served, served.get("/v1/host-keys"), agree, changed_too=False))
        problems = {verdict.node: verdict.problem for verdict in verdicts if verdict.problem}
        reached = [node for node in nodes if node not in problems]
        checks = served.get("/v1/doctor", node=reached) if reached else []
        for node in reached:
            if why := failed([check for check in checks if check["node"] == node]):
                problems[node] = why
        passed = [node for node in reached if node not in problems]
        images = {node: _images(served, node) for node in passed}
        image = default_image(images)
        has_image = [node for node in passed if image in {each.name for each in images[node]}]
        gpus = [gpu for node in passed for gpu in served.get("/v1/gpus", node=node)]
    return Tried(problems, checks, image, has_image, gpus)


@contextlib.contextmanager
def _controller(inventory: str) -> Iterator[Client]:
    """A client of a controller whose state lasts as long as the block. Host keys are recorded in the usual place."""
    folder = Path(tempfile.mkdtemp(prefix="agentless-init-"))
    try:
        state = folder / "state"
        state.mkdir(mode=0o700)
        (folder / "inventory.yaml").write_text(inventory, encoding="utf-8")
        served = Client(state, folder / "inventory.yaml")
        try:
            yield served
        finally:
            if served.is_running():
                end(served, state)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _images(served: Client, node: str) -> list[ImageView]:
    """The images of a node; none if it does not say: a default image is a convenience."""
    try:
        found: list[Mapping[str, Any]] = served.get(f"/v1/nodes/{node}/images")
    except AgentlessError:
        return []
    return [ImageView(each["name"], each["size"], each["entrypoint"]) for each in found]
