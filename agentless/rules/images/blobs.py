"""Images as containerd's store has them: which blobs an image is made of, and the archive for `docker load`.

There an image is a manifest, which lists its configuration and its layers by their hashes. A layer may be compressed,
so the hash of its blob is not its diff id. The archive is an OCI layout, from which `docker load` takes what it lacks:
blobs that the store has may be left out. https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from agentless.formats import tar_writing
from agentless.model.images.image import Blob, Image

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_MANIFESTS = (_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(data: bytes) -> str:
    """The hash of a blob as a store writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def file_of(digest: str) -> str:
    """The file of a blob in an archive."""
    return f"blobs/sha256/{digest.partition(':')[2]}"


def parse_blobs(layers: Sequence[str], files: Iterable[bytes]) -> tuple[str, bytes, tuple[Blob, ...]]:
    """The hash of the configuration, the manifest, and the blobs of the image with these layers.

    `files` are the small files of its archive. Nothing is believed but by its hash. Raises ValueError.
    """
    found = {digest_of(data): data for data in files}
    for data in found.values():
        fields = _fields(data)
        if fields.get("mediaType", _MANIFEST) not in _MANIFESTS:
            continue
        config = (fields.get("config") or {}).get("digest") if isinstance(fields.get("config"), Mapping) else None
        blobs = _blobs(fields.get("layers"))
        rootfs = _fields(found.get(str(config), b"")).get("rootfs")
        diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, Mapping) else None
        if blobs and len(blobs) == len(layers) and diff_ids == list(layers):
            return str(config), data, blobs
    raise ValueError("no manifest")


def layout(manifest: bytes) -> dict[str, bytes]:
    """The files that make an archive of one image, without a name, of a manifest and its blobs."""
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [_descriptor(manifest, _kind(manifest))]}
    return {file_of(digest_of(manifest)): manifest, "oci-layout": _LAYOUT, "index.json": orjson.dumps(index)}


class BlobArchive:
    """The archive of an image, layer by layer, for an engine with containerd's store, which has the blobs `kept`.

    Its image has no name: the engine gives names before it knows whether all blobs are there.
    """

    def __init__(self, image: Image, kept: Sequence[Blob]) -> None:
        self._image = image
        self._known = dict(zip(image.layers, kept, strict=False))
        self._of_source = dict(zip(image.layers, image.blobs, strict=False))
        self.sent: set[str] = set()

    def header(self, layer: str, size: int) -> bytes:
        """What comes before a layer."""
        blob = self._known[layer] = self._of_source.get(layer) or Blob(layer, size, _LAYER)
        self.sent.add(blob.digest)
        return tar_writing.header(file_of(blob.digest), size=size, form=tar_writing.GNU)

    def end(self, config: bytes, count: int) -> tuple[bytes, str]:
        """What comes after the lowest `count` layers; and the id of the image that they make."""
        blobs = [self._known[layer] for layer in self._image.layers[:count]]
        manifest = self._manifest(config, blobs)
        files = {file_of(digest_of(config)): config, **layout(manifest)}
        written = [tar_writing.file(name, data, form=tar_writing.GNU) for name, data in files.items()]
        return b"".join([*written, tar_writing.END]), digest_of(manifest)

    def _manifest(self, config: bytes, blobs: Sequence[Blob]) -> bytes:
        """The manifest that the source has, if it is of the same blobs: then both call the image the same."""
        if tuple(blobs) == self._image.blobs and digest_of(config) == self._image.config:
            return self._image.manifest
        layers = [{"mediaType": blob.kind, "digest": blob.digest, "size": blob.size} for blob in blobs]
        fields = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": _descriptor(config, _CONFIG), "layers": layers}
        return orjson.dumps(fields)


def _descriptor(data: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}


def _kind(manifest: bytes) -> str:
    return str(_fields(manifest).get("mediaType") or _MANIFEST)


def _fields(data: bytes) -> Mapping[str, Any]:
    try:
        orjson.loads(data)  # refuses what the other takes, but engines do not: NaN, lone surrogates, UTF-16
        found = json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without fields if two keys are equal up to case: engines take both for one field."""
    return dict(pairs) if len({key.casefold() for key, _ in pairs}) == len(pairs) else {}


def _blobs(entries: object) -> tuple[Blob, ...]:
    """The layers of a manifest; none if one of them cannot be read."""
    try:
        found = tuple(
            Blob(str(each["digest"]), int(each["size"]), str(each["mediaType"]))
            for each in (entries if isinstance(entries, list) else ())
        )
    except (KeyError, TypeError, ValueError):
        return ()
    return found if all(DIGEST.fullmatch(blob.digest) and 0 <= blob.size < 1 << 63 for blob in found) else ()
