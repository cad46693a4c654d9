"""Which layers of an image have to be sent, and the archive for `docker load`.

A layer is identified by the SHA-256 of its tar file, its diff id. Docker stores a layer with the chain below it, so an
engine can reuse a chain from the bottom only. The archive is a tar of `manifest.json` (which names the other files),
the configuration of the image (its SHA-256 is the image's id), and a tar per layer. Layers that the engine has may be
left out. https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from agentless.formats import tar_writing
from agentless.model.images.image import UTC, Image
from agentless.rules.images.blobs import digest_of, file_of

PARTIAL = "agentless.partial"
"""The label of an image with the lower layers of an image that is being sent; its value is the id of that."""

_EMPTY = {
    "Hostname": "",
    "Domainname": "",
    "User": "",
    "AttachStdin": False,
    "AttachStdout": False,
    "AttachStderr": False,
    "Tty": False,
    "OpenStdin": False,
    "StdinOnce": False,
    "Env": None,
    "Cmd": None,
    "Image": "",
    "Volumes": None,
    "WorkingDir": "",
    "Entrypoint": None,
    "OnBuild": None,
    "Labels": None,
}


def common_layers(wanted: Sequence[str], stores: Iterable[Sequence[str]]) -> int:
    """The largest number of layers, from the bottom, that an image shares with one of these."""
    best = 0
    for chain in stores:
        same = 0
        for ours, theirs in zip(wanted, chain, strict=False):
            if ours != theirs:
                break
            same += 1
        best = max(best, same)
    return best


def most(image: Image) -> int:
    """The bytes that its layers can have in an archive.

    A store of the engine's own counts what is in the files. A tar has up to 2 KiB more for each, also for empty ones.
    """
    return sum(blob.size for blob in image.blobs) if image.blobs else 2 * image.size + (1 << 30)


def layer_files(image: Image) -> dict[str, str]:
    """The files in which `docker save` writes the layers, with their diff ids.

    containerd's store tells the names, by a manifest. With its own, an engine since version 25 names a file by its own
    hash. Earlier ones derive the name of a layer from those below it, and the name of the top one from the whole
    image. So the top layer is not returned, and no layer at all if the engine has another time zone. For an unknown
    name, the reader has to wait for the manifest, which comes last.
    """
    if image.blobs:
        return {file_of(blob.digest): layer for blob, layer in zip(image.blobs, image.layers, strict=True)}
    found = {file_of(layer): layer for layer in image.layers}
    for zone in {image.zone, UTC}:
        chain = parent = ""
        for layer in image.layers[:-1]:
            chain = f"sha256:{_sha256(f'{chain} {layer}')}" if chain else layer
            fields: dict[str, object] = {"container_config": _EMPTY, "created": zone, "layer_id": chain}
            if parent:
                fields["parent"] = parent
            name = _sha256(json.dumps(fields, separators=(",", ":")))
            parent = f"sha256:{name}"
            found.setdefault(f"{name}/layer.tar", layer)
    return found


def unwanted(image: Image, kept: int) -> list[str]:
    """The layer files that a node with the lowest `kept` layers does not need. A layer may be in an image twice.

    A node with all layers needs only the configuration, so all files are returned, whatever the top one is called.
    """
    needed = set(image.layers[kept:])
    found = [name for name, layer in layer_files(image).items() if layer not in needed]
    return found if needed else [*found, "*/layer.tar"]


def by_manifest(manifest: bytes, image: Image) -> dict[str, str]:
    """The files of an archive with their diff ids, from its manifest. Raises ValueError if it is invalid."""
    try:
        [entry] = json.loads(manifest)
        return {str(name): layer for name, layer in zip(entry["Layers"], image.layers, strict=True)}
    except (KeyError, TypeError, RecursionError):
        raise ValueError("cannot read its manifest") from None


def layer_file(layer: str) -> str:
    """The name of a layer in an archive that agentless writes."""
    return f"{layer.partition(':')[2]}.tar"


def layer_header(layer: str, size: int) -> bytes:
    """The tar header of a layer in an archive that agentless writes."""
    return tar_writing.header(layer_file(layer), size=size, form=tar_writing.GNU)


def head_of(config: bytes, layers: Sequence[str], tags: Sequence[str]) -> bytes:
    """The archive without its layers. It may come after them."""
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": list(tags) or None, "Layers": [layer_file(layer) for layer in layers]}]
    listing = tar_writing.file("manifest.json", json.dumps(manifest).encode(), form=tar_writing.GNU)
    return tar_writing.file(name, config, form=tar_writing.GNU) + listing + tar_writing.END


class DockerArchive:
    """The archive of an image, layer by layer, for an engine with a store of its own; the image gets these tags."""

    def __init__(self, image: Image, tags: Sequence[str]) -> None:
        self._image, self._tags = image, tags
        self.sent: set[str] = set()

    def header(self, layer: str, size: int) -> bytes:
        """What comes before a layer."""
        self.sent.add(layer)
        return layer_header(layer, size)

    def end(self, config: bytes, count: int) -> tuple[bytes, str]:
        """What comes after the lowest `count` layers; and the id of the image that they make."""
        chain = self._image.layers[:count]
        tags = self._tags if count == len(self._image.layers) else ()
        return head_of(config, chain, tags), digest_of(config)


def partial(image: Image, kept: int) -> bytes:
    """The configuration of an image with the lowest layers of another one. A next attempt reuses them."""
    fields = {
        "architecture": image.architecture,
        "config": {"Labels": {PARTIAL: image.id}},
        "os": image.os,
        "rootfs": {"type": "layers", "diff_ids": list(image.layers[:kept])},
    }
    return json.dumps(fields).encode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
