"""Which of the images that nodes have already is a good default for tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.view import ImageView

_FAMILIAR = ("pytorch", "tensorflow", "jax", "cuda", "python", "ubuntu", "debian", "alpine", "busybox")
"""Words in the names of images that people use as a base, the best one first."""
_LEAST = 1_000_000
"""Bytes. What is smaller has no commands in it, like `hello-world` and `pause`."""


def default_image(found: Mapping[str, Iterable[ImageView]]) -> str | None:
    """The image that most nodes have, of those the most familiar, of those the newest; None if none will do."""
    nodes: dict[str, int] = {}
    for images in found.values():
        for name in dict.fromkeys(image.name for image in images if _runs_commands(image)):
            nodes[name] = nodes.get(name, 0) + 1
    return min(nodes, key=lambda name: (-nodes[name], _strangeness(name)), default=None)


def _runs_commands(image: ImageView) -> bool:
    """Whether it starts the command that it is given. A script is named entrypoint if it does so in the end."""
    return image.size >= _LEAST and (not image.entrypoint or image.entrypoint.endswith("entrypoint.sh"))


def _strangeness(name: str) -> int:
    return next((rank for rank, word in enumerate(_FAMILIAR) if word in name), len(_FAMILIAR))
