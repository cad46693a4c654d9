"""An image, and how much of it another node has."""

from __future__ import annotations

from dataclasses import dataclass

UTC = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: `layers` are its diff ids from the bottom, `size` its uncompressed bytes.

    `zone` is Unix second 0 in the node's time zone as RFC 3339: old engines derive layer names from it. `containerd`:
    the engine uses containerd's image store, which has other ids and only loads whole archives. `packers` are the
    compressors of the node.
    """

    id: str
    layers: tuple[str, ...]
    size: int
    zone: str = UTC
    containerd: bool = False
    packers: frozenset[str] = frozenset()
    architecture: str = ""
    os: str = ""


@dataclass(frozen=True, slots=True)
class ImagePresence:
    """How much of an image a node has: all of it if `present`, else so many layers from the bottom."""

    present: bool
    size: int = 0
    kept: int = 0
    packers: frozenset[str] = frozenset()
    containerd: bool = False


@dataclass(frozen=True, slots=True)
class ImageDefaults:
    """Defaults of an image: its user, its working directory and its volumes."""

    id: str
    user: str = ""
    workdir: str = ""
    volumes: tuple[str, ...] = ()


def short(image: str) -> str:
    """An image id, shortened for messages."""
    return image.removeprefix("sha256:")[:12]
