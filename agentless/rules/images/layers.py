"""Which layers of an image have to travel, and the archive that `docker load` makes the image of.

A layer is known by the SHA-256 of its tar file, its diff id. Docker keeps a layer together with those below it: what
an engine can reuse is a chain from the bottom. The archive that it loads is a tar of `manifest.json` (which names the
other files), the configuration of the image, whose SHA-256 is the image's id, and a tar per layer; layers that the
engine has may be left out. https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from agentless.formats import tar_writing
from agentless.model.images.image import UTC, Image

PARTIAL = "agentless.partial"
"""The label of an image that holds the lower layers of one that is still on its way, whose id is the value."""

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
    """How many layers of an image, from its bottom, are those of another one, at most."""
    best = 0
    for chain in stores:
        same = 0
        for ours, theirs in zip(wanted, chain, strict=False):
            if ours != theirs:
                break
            same += 1
        best = max(best, same)
    return best


def layer_files(image: Image) -> dict[str, str]:
    """The files in which `docker save` writes the layers, each with the diff id.

    Engines since 25 name a file by its own hash. Those before derived the name of a layer from those below it, and that
    of the top one from the whole image: so that one is not among these, nor is any when the engine lives in a time zone
    of its own. Whoever meets an unknown name has to wait for the manifest, which comes last.
    """
    found = {f"blobs/sha256/{layer.partition(':')[2]}": layer for layer in image.layers}
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
    """The files of layers that nobody needs who has so many from the bottom. A layer may be in an image twice.

    Who has all of them, and lacks no more than the image's configuration, needs none, whatever the top one is called.
    """
    needed = set(image.layers[kept:])
    found = [name for name, layer in layer_files(image).items() if layer not in needed]
    return found if needed else [*found, "*/layer.tar"]


def by_manifest(manifest: bytes, image: Image) -> dict[str, str]:
    """The files of an archive with their diff ids, as its manifest says; raises ValueError for one that is none."""
    try:
        [entry] = json.loads(manifest)
        return {str(name): layer for name, layer in zip(entry["Layers"], image.layers, strict=True)}
    except (KeyError, TypeError, RecursionError):
        raise ValueError("its manifest cannot be read") from None


def layer_file(layer: str) -> str:
    """The name of a layer in an archive of ours."""
    return f"{layer.partition(':')[2]}.tar"


def layer_header(layer: str, size: int) -> bytes:
    """What precedes a layer of this size in an archive of ours."""
    return tar_writing.header(layer_file(layer), size=size, form=tar_writing.GNU)


def head_of(config: bytes, layers: Sequence[str], tags: Sequence[str]) -> bytes:
    """All of an archive but the layers; it may come after them."""
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": list(tags) or None, "Layers": [layer_file(layer) for layer in layers]}]
    listing = tar_writing.file("manifest.json", json.dumps(manifest).encode(), form=tar_writing.GNU)
    return tar_writing.file(name, config, form=tar_writing.GNU) + listing + tar_writing.END


def partial(image: Image, kept: int) -> bytes:
    """The configuration of an image that holds the lowest layers of another one, so that a next try finds them."""
    fields = {
        "architecture": image.architecture,
        "config": {"Labels": {PARTIAL: image.id}},
        "os": image.os,
        "rootfs": {"type": "layers", "diff_ids": list(image.layers[:kept])},
    }
    return json.dumps(fields).encode()


def image_id(config: bytes) -> str:
    """The id of the image with this configuration."""
    return f"sha256:{hashlib.sha256(config).hexdigest()}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
