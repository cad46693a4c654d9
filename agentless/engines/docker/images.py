"""Images of a Docker engine: commands that inspect, save and load them, and their answers. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import orjson

from agentless.engines.answers import parser
from agentless.engines.docker.commands import Commands
from agentless.errors import AgentlessError, ImageGone, LayerMissing, RuntimeFailed
from agentless.formats.tar_writing import padded
from agentless.model.command import Command, Result, escaped
from agentless.model.images.env import is_ours
from agentless.model.images.image import UTC, Image, ImagePresence, short
from agentless.model.nodes.node import with_node
from agentless.model.text import cut, printable
from agentless.model.view import ImageView
from agentless.rules.images.blobs import DIGEST, layout, parse_blobs
from agentless.rules.images.compressed import PACKERS
from agentless.rules.images.layers import PARTIAL, common_layers, most

LOOK_WITHIN = 60.0
READ_WITHIN = 3600.0
"""Seconds to describe an image: an engine with containerd's store has to read all of it for that."""
MAX_LISTED = 500
"""The most names of images that are taken from one node."""
LOAD_WITHIN = 12 * 3600.0
"""Seconds after which the node itself ends a load, should nobody else do it."""

_CONFIG_MOST = 4 << 20
"""The most bytes of an image's configuration: engines hold it in memory."""

_SSH = [
    *("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ForwardAgent=no"),
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"),
]
# Without its layers while a blob of them is missing in containerd's store.
_LOADED = "{{.Id}} {{json .RootFS}}"
_TAGGED = "{{.Id}} {{.Size}} {{json .RepoTags}} {{json .RootFS}}"
_IMAGE = (
    '{"id":{{json .Id}},"rootfs":{{json .RootFS}},"size":{{.Size}},'
    '"architecture":{{json .Architecture}},"os":{{json .Os}}}'
)
_LISTED = '{"names":{{json .RepoTags}},"size":{{.Size}},"entrypoint":{{json .Config.Entrypoint}}}'
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}")
_LAYERS = "layers {{json .RootFS.Layers}} {{.Id}}"
_INFO = "driver {{json .DriverStatus}}"
_CONTAINERD = "io.containerd.snapshotter"
_BLOB = re.compile(rb"blob ([0-9]{1,7})\n")
_CHAIN = re.compile(r"layers (\[[^]]*\])(?: (\S+))?")
_LOADED_ID = re.compile(r"^(sha256:[0-9a-f]{64}) \{", re.MULTILINE)
_ZONE = re.compile(r"(1969|1970)-[\d:T-]+[+-]\d{4}")
_GONE = re.compile(r"no such image|reference does not exist|failed to get digest|imagedb", re.IGNORECASE)
_LACKS = re.compile(r"(no such file or directory|not found).*|content digest .* not found", re.IGNORECASE | re.DOTALL)


class DockerImages:
    """Image commands for one node."""

    def __init__(self, commands: Commands, complaint: Callable[[str], str]) -> None:
        self._commands = commands
        self._node = commands.node
        self._complaint = complaint

    # ------------------------------------------------------------------ looking

    def describe(self, image: str) -> Command:
        """Describe an image on the node that is to send it."""
        values = {"image": image, "image_format": _IMAGE, "info_format": _INFO, "containerd": _CONTAINERD}
        return self._script("image-source.sh.j2", READ_WITHIN, **values)

    def parse_description(self, image: str, result: Result) -> Image:
        """The image; raises ImageGone or RuntimeFailed."""
        if not result.ok:
            raise self._refused(image, result)
        said = Result(0, result.stdout.partition(b"\nblob ")[0] + b"\n")
        try:
            fields = orjson.loads(next(line for line in said.out.splitlines() if line.startswith("{")))
            found = Image(
                id=str(fields["id"]),
                layers=tuple(map(str, fields["rootfs"].get("Layers") or ())),
                size=int(fields["size"]),
                zone=_zone(said.out),
                containerd=_CONTAINERD in said.out,
                packers=_tools(said),
                architecture=str(fields["architecture"]),
                os=str(fields["os"]),
            )
            if found.containerd and found.layers:
                config, manifest, blobs = parse_blobs(found.layers, _files(result.stdout))
                found = replace(found, config=config, manifest=manifest, blobs=blobs)
            if not all(DIGEST.fullmatch(each) for each in (*found.names, *found.layers)):
                raise ValueError("no hash")
        except (StopIteration, AttributeError, KeyError, TypeError, ValueError):
            raise RuntimeFailed(
                f"{self._node.name}: cannot read Docker's description of image {short(image)}"
            ) from None
        if image.startswith("sha256:") and image not in found.names:
            raise RuntimeFailed(f"{self._node.name} described another image than {short(image)}")
        if not found.layers:
            raise RuntimeFailed(f"image {short(image)} on {self._node.name} has no layers; nothing to send")
        return found

    def look(self, image: Image, tags: Sequence[str], loaded: str = "") -> Command:
        """Ask what a node has of the image, which is called `loaded` there, if given.

        A node that has all of it tags it with `tags`.
        """
        return self._script(
            "image-look.sh.j2",
            images=[loaded] if loaded else list(image.names),
            tags=list(tags),
            bottom=f'layers ["{image.layers[0]}"',
            id_format=_TAGGED,
            info_format=_INFO,
            layers_format=_LAYERS,
        )

    @parser
    def parse_look(self, image: Image, result: Result) -> ImagePresence:
        """What the node has of the image; raises RuntimeFailed."""
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self._complaint(result.err or result.out)))
        lines = result.out.splitlines()
        for line in lines:
            if line.startswith("image "):
                return ImagePresence(True, size=_size(line), kept=len(image.layers))
        chains = [(orjson.loads(match[1]), match[2] or "") for line in lines if (match := _CHAIN.fullmatch(line))]
        kept, nearest = max(
            ((common_layers(image.layers, [chain]), name) for chain, name in chains),
            key=lambda each: each[0],
            default=(0, ""),
        )
        return ImagePresence(False, 0, kept, _tools(result), _CONTAINERD in result.out, nearest)

    def names(self) -> Command:
        """Ask for the names of the node's images."""
        return self._script("image-list.sh.j2", list_format=_LISTED)

    @parser
    def parse_names(self, result: Result) -> tuple[ImageView, ...]:
        """The named images, envs left out; raises RuntimeFailed. Names that no registry allows are left out."""
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self._complaint(result.err or result.out)))
        found: dict[str, ImageView] = {}
        for line in result.out.splitlines():
            for image in _listed(line):
                found.setdefault(image.name, image)
        return tuple(found.values())[:MAX_LISTED]

    # ------------------------------------------------------------------- moving

    def pull(self, image: str) -> Command:
        """Have the node fetch an image from its registry."""
        return self._commands.words("docker-pull.j2", image=image)

    def save(self, image: str, skip: Sequence[str], packer: str | None) -> Command:
        """Read the image once; the layers come as the template says."""
        words = " ".join(["", *skip, ""])
        return self._script("image-save.sh.j2", image=image, skip=words, pack=PACKERS[packer][0] if packer else None)

    def load(self, image: Image, packer: str | None, *, containerd: bool) -> Command:
        """Take an archive of this image or of its lower layers; the answer is what was loaded, if all of it is there.

        In a store of the engine's own, what held the layers is removed once the image is there.
        """
        unpack = PACKERS[packer][1] if packer else None
        if containerd:
            return self._script("image-load-blobs.sh.j2", LOAD_WITHIN, unpack=unpack, id_format=_LOADED)
        values = {"image": image.names[-1], "unpack": unpack, "label": _held(image.id), "id_format": _LOADED}
        return self._script("image-load.sh.j2", LOAD_WITHIN, **values)

    def forget(self, image: str) -> Command:
        """Remove the images that held layers of this one on its way."""
        return self._script("image-forget.sh.j2", label=_held(image))

    def loaded_id(self, result: Result) -> str:
        """What the node calls the image that it has loaded; empty if it has loaded none."""
        found = _LOADED_ID.search(result.out) if result.ok else None
        return found[1] if found else ""

    def check_load(self, image: str, result: Result, sent: Collection[str] = ()) -> None:
        """Raise the reason if the image was not loaded. `sent` are the hashes of the layers in the archive."""
        if result.ok and image in result.out:
            return
        words = result.err.strip() or result.out.strip()
        if "agentless: incomplete" in words and not any(each in words for each in sent):
            raise LayerMissing(f"{self._node.name} does not have all layers of image {short(image)} that it had")
        if (
            "agentless: incomplete" in words
            or "diffID" in words
            or "agentless: other bytes" in words
            or ("digest" in words and "mismatch" in words)
        ):
            raise RuntimeFailed(
                f"{self._node.name} rejected image {short(image)}: the content of a layer does not match its ID "
                "(damaged at the source or in transit); nothing was kept"
            )
        if "agentless: too large" in words:
            raise RuntimeFailed(
                f"{self._node.name} refused image {short(image)}: an archive of more bytes than the image has, or a "
                "layer of more than 64 GiB; omit --via to send it through the controller"
            )
        if "agentless: no /" in words:
            raise RuntimeFailed(
                f"{self._node.name} does not have {words.partition('agentless: no ')[2]}; check that shared_dir is "
                "the same folder on all nodes"
            )
        if "no space left" in words:
            raise RuntimeFailed(
                f"{self._complaint(words)}; nothing of image {short(image)} was kept; free some space and retry"
            )
        if result.ok:
            raise RuntimeFailed(f"{self._node.name} loaded image {short(image)} under another ID")
        if _LACKS.search(words):
            raise LayerMissing(with_node(self._node.name, self._complaint(words)))
        raise RuntimeFailed(with_node(self._node.name, self._complaint(words)))

    def save_failed(self, image: str, words: str) -> AgentlessError:
        """The reason why reading the image failed, from its standard error."""
        return self._refused(image, Result(1, b"", words.encode()))

    # ---------------------------------------------------------------- other ways

    def way(self, script: str = "") -> list[str]:
        """How another node reaches this one by its own ssh: with its own keys, and only if it knows the host key."""
        node = self._node
        port = ["-p", str(node.port)] if node.port else []
        user = ["-l", node.user] if node.user else []
        word = escaped(script.encode("utf-8", "surrogateescape")).decode()
        run = [f"exec sh -c 'eval \"$(printf %b \"$0\")\"' '{word}'"] if script else []
        return [*_SSH, *port, *user, "--", node.host, *run]

    def reach(self, ways: Sequence[Sequence[str]]) -> Command:
        """Try to reach nodes by these commands; the answer has the numbers of those that work."""
        return self._script("image-reach.sh.j2", ways=[list(way) for way in ways])

    def straight(self, image: str, skip: Sequence[str], packer: str | None, ways: Sequence[Sequence[str]]) -> Command:
        """Read the image once, and send its archive by each of these ways."""
        return self._archive("image-straight.sh.j2", image, skip, packer, ways=[list(way) for way in ways])

    def share(self, image: str, skip: Sequence[str], packer: str | None, file: str) -> Command:
        """Write its archive to a file; the answer is `whole`, and its size."""
        return self._archive("image-share.sh.j2", image, skip, packer, file=file)

    def take(self, image: Image, packer: str | None, file: str | None, *, containerd: bool) -> Command:
        """Load the image from an archive in a file, or on standard input; the answer is what was loaded.

        Between stores of containerd's, the manifest is the source's.
        """
        wanted = [blob.digest for blob in image.blobs] or image.layers
        files = layout(image.manifest) if containerd and image.blobs else {}
        return self._script(
            "image-take.sh.j2",
            LOAD_WITHIN,
            unpack=PACKERS[packer][1] if packer else None,
            file=file,
            layers=" ".join(_hex(each) for each in wanted),
            room=most(image) + _CONFIG_MOST,
            small=_CONFIG_MOST,
            config=_hex(image.names[-1]),
            files=[(name, data.decode()) for name, data in files.items()],
            id_format=_LOADED,
        )

    def drop(self, file: str) -> Command:
        """Remove the file that `share` wrote."""
        return self._commands.script("image-drop.sh.j2", file=file)

    # ------------------------------------------------------------------- inside

    def _archive(self, template: str, image: str, skip: Sequence[str], packer: str | None, **values: object) -> Command:
        words = " ".join(["", *skip, ""])
        pack = PACKERS[packer][0] if packer else None
        return self._script(template, image=image, skip=words, pack=pack, **values)

    def _refused(self, image: str, result: Result) -> RuntimeFailed:
        words = result.err.strip() or result.out.strip()
        if _GONE.search(words):
            return ImageGone(f"{self._node.name} no longer has image {short(image)}; nothing was sent")
        return RuntimeFailed(with_node(self._node.name, self._complaint(words)))

    def _script(self, template: str, timeout: float = LOOK_WITHIN, /, **values: object) -> Command:
        return self._commands.script(template, timeout=timeout, **values)


def _listed(line: str) -> list[ImageView]:
    """The images that a line names; a line that cannot be read names none."""
    try:
        fields = orjson.loads(line)
        size, words = int(fields["size"]), " ".join(map(str, fields["entrypoint"] or ()))
        names = [str(name) for name in fields["names"] or ()]
    except (KeyError, TypeError, ValueError):
        return []
    entrypoint = cut(printable(words), 200)
    return [ImageView(name, size, entrypoint) for name in names if _NAME.fullmatch(name) and not is_ours(name)]


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def _held(image: str) -> str:
    return f"label={PARTIAL}={image}"


def _tools(result: Result) -> frozenset[str]:
    return frozenset(line[5:] for line in result.out.splitlines() if line.startswith("tool "))


def _size(line: str) -> int:
    word = line.split()[2]
    return int(word) if word.isdecimal() else 0


def _files(said: bytes) -> Iterator[bytes]:
    """The small files of an archive: each after a line with its size, and filled up to blocks as it was."""
    at = 0
    while match := _BLOB.search(said, at):
        size = int(match[1])
        yield said[match.end() : match.end() + size]
        at = match.end() + padded(size)


def _zone(said: str) -> str:
    """The hour of Unix second 0 as Go writes it: with +01:00, or Z for none; `date` says +0100."""
    hour = _ZONE.search(said)
    if hour is None or hour[0].endswith("+0000"):
        return UTC
    return f"{hour[0][:-2]}:{hour[0][-2:]}"
