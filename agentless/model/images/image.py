"""An image as its engine describes it, and what another node has of it."""

from __future__ import annotations

from dataclasses import dataclass

UTC = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Image:
    """An image as its engine describes it: `layers` are its diff ids from the bottom, `size` its bytes unpacked.

    `zone` is the hour there at Unix second 0 as RFC 3339, by which old engines name layers; `containerd` says that the
    engine keeps images in containerd's store, which has other ids and takes whole archives only. `packers` are the
    programs there that compress.
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
    """What a node has of an image. `present`: all of it, with its tags now; else so many layers, from the bottom."""

    present: bool
    size: int = 0
    kept: int = 0
    packers: frozenset[str] = frozenset()
    containerd: bool = False


@dataclass(frozen=True, slots=True)
class ImageDefaults:
    """How containers of an image run: who is in it and where, and which folders are volumes."""

    id: str
    user: str = ""
    workdir: str = ""
    volumes: tuple[str, ...] = ()


def short(image: str) -> str:
    """An id as people write it."""
    return image.removeprefix("sha256:")[:12]
