"""An image, and how much of it another node has."""

from __future__ import annotations

from dataclasses import dataclass

UTC = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Blob:
    """A file in containerd's image store: its SHA-256, its bytes, and its media type."""

    digest: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image: `layers` are its diff ids from the bottom, `size` its bytes as the engine counts them.

    `id` is what its engine calls it, `config` the hash of its configuration, which is the same in every store. An
    engine with a store of its own uses that as id. One with `containerd`'s uses the hash of a manifest, which lists
    the `blobs` of the layers; they may be compressed.

    `zone` is Unix second 0 in the node's time zone as RFC 3339: old engines derive layer names from it. `packers` are
    the compressors of the node.
    """

    id: str
    layers: tuple[str, ...]
    size: int
    zone: str = UTC
    containerd: bool = False
    packers: frozenset[str] = frozenset()
    architecture: str = ""
    os: str = ""
    config: str = ""
    manifest: bytes = b""
    blobs: tuple[Blob, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What engines may call it."""
        return tuple(dict.fromkeys((self.id, self.config or self.id)))


@dataclass(frozen=True, slots=True)
class ImagePresence:
    """How much of an image a node has: all of it if `present`, else so many layers from the bottom.

    `nearest` is an image that has the `kept` layers too. In `containerd`'s store they are these `blobs`.
    """

    present: bool
    size: int = 0
    kept: int = 0
    packers: frozenset[str] = frozenset()
    containerd: bool = False
    nearest: str = ""
    blobs: tuple[Blob, ...] = ()


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
