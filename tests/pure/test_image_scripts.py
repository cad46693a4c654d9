"""The scripts that read the archive of `docker save` on a node, in the shells that nodes have, on archives by hand."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentless.controller import plugins
from agentless.controller.images.archive_reader import SMALL, BrokenOffError, fetch
from agentless.controller.images.layer_spool import LayerSpool
from agentless.engines.docker.commands import Commands
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.images import DockerImages, _files
from agentless.errors import RuntimeFailed
from agentless.formats.tar_writing import padded, padding
from agentless.model.command import Command, Result
from agentless.model.images.image import Blob, Image
from agentless.model.nodes.node import NodeConfig
from agentless.paths import template_dir
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from agentless.render import Renderer
from agentless.rules.images import layers
from agentless.rules.images.blobs import digest_of
from tests.pure.shells import SHELLS

shells = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
forms = pytest.mark.parametrize("form", ["legacy", "oci"])
renderer = Renderer([template_dir()])
DATA = [b"bottom\0" * 1001, b"middle" * 300_000, b"top\n" * 50_001]
LAYERS = tuple(f"sha256:{hashlib.sha256(data).hexdigest()}" for data in DATA)
CONFIG = json.dumps({"os": "linux", "rootfs": {"type": "layers", "diff_ids": LAYERS}}).encode()
IMAGE = Image(f"sha256:{hashlib.sha256(CONFIG).hexdigest()}", LAYERS, 0)


def archive(form: str, *, big: bool = False) -> bytes:
    """As engines before 25 write it, or as those since then do: in the order of the names, the manifest late."""
    files: dict[str, bytes] = {}
    if form == "legacy":
        names = [name for name in layers.layer_files(IMAGE) if name.endswith("/layer.tar")] + [f"{'f' * 64}/layer.tar"]
        config = f"{IMAGE.id[7:]}.json"
        for name, data in zip(names, DATA, strict=True):
            folder = name.partition("/")[0]
            files |= {f"{folder}/": b"", f"{folder}/VERSION": b"1.0", f"{folder}/json": b"{}", name: data}
    else:
        names = [f"blobs/sha256/{layer[7:]}" for layer in LAYERS]
        config = f"blobs/sha256/{IMAGE.id[7:]}"
        files = dict(zip(names, DATA, strict=True)) | {"blobs/": b"", "blobs/sha256/": b"", "index.json": b"{}"}
        files["oci-layout"] = b"{}"
    files[config] = CONFIG
    files["manifest.json"] = json.dumps([{"Config": config, "RepoTags": None, "Layers": names}]).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.size = len(data)
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            if big and name in names:
                entry.pax_headers = {"comment": "x" * 600, "size": str(len(data))}
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def docker(tmp_path: Path) -> str:
    """A docker that saves what is in the file beside it."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "save {IMAGE.id}" ] || exit 9\nexec cat {tmp_path}/saved\n')
    program.chmod(0o755)
    return str(program)


def layers_of(out: bytes) -> dict[str, bytes]:
    """What the script says, taken apart."""
    found = {}
    while out != b".\n":
        line, _, out = out.partition(b"\n")
        kind, size, name = line.split()
        assert kind == b"r"
        found[name.decode()] = out[: int(size)]
        out = out[padded(int(size)) :]
    return found


def hostile(data: bytes, change: Callable[[dict[str, bytes]], object]) -> bytes:
    """The archive after a change of its files."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    change(files)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def layer_in(files: dict[str, bytes]) -> str:
    return next(name for name, data in files.items() if data == DATA[1])


NAMES = json.dumps([{"Config": "x", "RepoTags": ["python:3.11"], "Layers": []}]).encode()
HARM: dict[str, Callable[[dict[str, bytes]], object]] = {
    "names": lambda files: files.update({"manifest.json": NAMES, "index.json": b"{}", "repositories": b"{}"}),
    "more": lambda files: files.update({"../../etc/cron.d/x": b"x", "/etc/x": b"x", "blobs/sha256/" + "0" * 64: b"x"}),
    "another layer": lambda files: files.update({layer_in(files): b"other" * 300}),
    "one more layer": lambda files: files.update({"../layer.tar": b"other" * 300}),
    "a layer twice": lambda files: files.update({f"{'1' * 64}/layer.tar": DATA[0], f"{'2' * 64}/layer.tar": DATA[0]}),
    "one layer in place of another": lambda files: files.update({layer_in(files): DATA[0]}),
    "the configuration twice": lambda files: files.update(
        {f"{IMAGE.id[7:]}.json": CONFIG, f"blobs/sha256/{IMAGE.id[7:]}": CONFIG}
    ),
    "another configuration": lambda files: files.update({f"{IMAGE.id[7:]}.json": CONFIG + b" "}),
}
"""What a hostile node does to an archive."""


def through(argv: list[str], data: bytes) -> bytes:
    return subprocess.run(argv, input=data, capture_output=True, check=True).stdout


@shells
@forms
@pytest.mark.parametrize("big", [False, True])
def test_only_what_is_wanted_is_handed_out(shell: list[str], form: str, big: bool, docker: str, tmp_path: Path) -> None:
    (tmp_path / "saved").write_bytes(archive(form, big=big))
    skip = " ".join(["", *layers.unwanted(IMAGE, 2), ""])
    script = renderer.script("image-save.sh.j2", docker=[docker], image=IMAGE.id, skip=skip, pack=None)
    done = subprocess.run(shell, input=script.encode(), capture_output=True, check=True)
    found = layers_of(done.stdout)
    assert set(found.values()) & set(DATA) == {DATA[2]}
    assert CONFIG in found.values()
    assert "manifest.json" in found


@shells
@forms
def test_an_archive_without_what_nobody_needs_is_else_the_same(
    shell: list[str], form: str, docker: str, tmp_path: Path
) -> None:
    (tmp_path / "saved").write_bytes(archive(form, big=True))
    skip = layers.unwanted(IMAGE, 1)
    script = renderer.script(
        "image-share.sh.j2",
        docker=[docker],
        image=IMAGE.id,
        skip=" ".join(["", *skip, ""]),
        pack=None,
        file=tmp_path / "out",
    )
    done = subprocess.run(shell, input=script.encode(), capture_output=True, check=True)
    whole, size = done.stdout.decode().splitlines()
    data = (tmp_path / "out").read_bytes()
    assert (whole, int(size)) == ("whole", len(data))
    with tarfile.open(fileobj=io.BytesIO(data)) as left, tarfile.open(tmp_path / "saved") as saved:
        wanted = [member.name for member in saved if member.name not in skip]
        assert left.getnames() == wanted
        for member in left:
            if member.isfile():
                assert left.extractfile(member).read() == saved.extractfile(member.name).read()


@shells
def test_the_small_files_of_an_archive_come_as_they_are(shell: list[str], tmp_path: Path) -> None:
    """Those that may be a manifest or a configuration, whatever is in them, and no layer."""
    texts = [b"{}", b'{"%s":"\\\\n"}' * 400, b"{" + b"x" * 511, b'{"\xc3\xa9":1}\n', b"{" + b"x" * 512]
    files = {f"blobs/sha256/{number}": text for number, text in enumerate(texts)}
    layer_files = {"blobs/sha256/a": DATA[0], "blobs/sha256/b": b"{" + bytes(1 << 20), "blobs/sha256/c": b""}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in sorted({**files, **layer_files}.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    (tmp_path / "saved").write_bytes(out.getvalue())
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1" != info ] || echo store\n[ "$1" != save ] || cat {tmp_path}/saved\n')
    program.chmod(0o755)
    values = {"docker": [str(program)], "image": "i", "image_format": "f", "info_format": "f", "containerd": "store"}
    script = renderer.script("image-source.sh.j2", **values)
    done = subprocess.run(shell, input=script.encode(), capture_output=True, check=True)
    assert list(_files(done.stdout)) == texts


def filtered(
    shell: list[str], data: bytes, image: Image = IMAGE, files: Sequence[tuple[str, str]] = ()
) -> subprocess.CompletedProcess[bytes]:
    """What a node hands to its engine of an archive from another node."""
    script = renderer.script(
        "image-filter.sh.j2",
        layers=" ".join(layer[7:] for layer in [blob.digest for blob in image.blobs] or image.layers),
        room=layers.most(image) + SMALL,
        small=SMALL,
        config=image.names[-1][7:],
        files=files,
    )
    return subprocess.run([*shell, "-c", script], input=data, capture_output=True, check=False)


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


@shells
@forms
def test_of_an_archive_from_another_node_only_layers_and_configuration_pass(shell: list[str], form: str) -> None:
    """Under names, and with a manifest, that are not from there."""
    done = filtered(shell, archive(form, big=True))
    assert (done.returncode, done.stderr) == (0, b"")
    found = members(done.stdout)
    [listed] = json.loads(found.pop("manifest.json"))
    assert (listed["Config"], listed["RepoTags"]) == ("config.json", None)
    assert found.pop("config.json") == CONFIG
    assert [found.pop(name) for name in listed["Layers"]] == DATA
    assert found == {}


@shells
@forms
@pytest.mark.parametrize("harm", HARM)
def test_what_was_not_meant_does_not_pass(shell: list[str], form: str, harm: str) -> None:
    done = filtered(shell, hostile(archive(form), HARM[harm]))
    names = set(members(done.stdout)) if done.returncode == 0 else set()
    assert names <= {"1.tar", "2.tar", "3.tar", "config.json", "manifest.json"}
    if harm in ("more", "names"):
        [listed] = json.loads(members(done.stdout)["manifest.json"])
        assert (done.returncode, listed["RepoTags"]) == (0, None)
    else:
        assert done.returncode == 1
        assert b"agentless: other bytes" in done.stderr
        assert b"manifest.json" not in done.stdout


@shells
def test_an_archive_that_ends_early_or_lies_of_a_size_does_not_pass(shell: list[str], tmp_path: Path) -> None:
    data = archive("oci", big=True)
    for short in (0, 512, len(data) // 2, len(data) - 20_000):
        assert filtered(shell, data[:short]).returncode == 1
    for size in ("x[$(touch ran)]", "9" * 30, "-1"):
        entry = tarfile.TarInfo("f")
        entry.pax_headers = {"size": size}
        done = filtered(["env", "-C", str(tmp_path), *shell], entry.tobuf(tarfile.PAX_FORMAT) + data)
        assert (done.returncode, list(tmp_path.iterdir())) == (1, [])


def entry(name: str, size: int) -> bytes:
    """What comes before a file in an archive."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT)


BLOBS = tuple(Blob(digest_of(data), len(data), "application/vnd.oci.image.layer.v1.tar+gzip") for data in DATA)
OF_BLOBS = replace(IMAGE, id="sha256:" + "0" * 64, config=IMAGE.id, blobs=BLOBS)


FIRST = entry("1/layer.tar", len(DATA[1])) + DATA[1] + padding(len(DATA[1]))


@pytest.mark.parametrize(
    ("image", "before", "size"),
    [
        (replace(IMAGE, size=1000), b"", 2 << 30),
        (OF_BLOBS, b"", layers.most(OF_BLOBS) + (4 << 20) + 1),
        (OF_BLOBS, FIRST, layers.most(OF_BLOBS) + (4 << 20)),
        (replace(IMAGE, size=1 << 40), b"", 65 << 30),
    ],
    ids=["size", "blobs", "second", "format"],
)
def test_an_engine_gets_no_byte_of_a_layer_that_the_image_has_no_room_for(
    image: Image, before: bytes, size: int, tmp_path: Path
) -> None:
    """It would store all of them before their hash is known."""
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ncat >{tmp_path}/loaded\nexit 1\n")
    program.chmod(0o755)
    images = DockerImages(Commands(NodeConfig("here", "", docker=(str(program),)), renderer, DOCKER), str)
    script = images.take(image, None, None, containerd=False).script
    data = before + entry(f"{'1' * 64}/layer.tar", size) + b"other" * 1000
    done = subprocess.run(["sh", "-c", script], input=data, capture_output=True, check=False)
    assert done.stderr.strip() == b"agentless: too large"
    assert b"other" not in (tmp_path / "loaded").read_bytes()
    with pytest.raises(RuntimeFailed, match=r"an archive of more bytes than the image has.*omit --via"):
        images.check_load(image.id, Result(1, b"", done.stderr))


@shells
@forms
def test_a_configuration_that_no_memory_has_room_for_does_not_pass(shell: list[str], form: str) -> None:
    name = {"legacy": f"{IMAGE.id[7:]}.json", "oci": f"blobs/sha256/{IMAGE.id[7:]}"}[form]
    done = filtered(shell, entry(name, SMALL + 1) + bytes(1 << 20))
    assert (done.stdout, done.stderr) == (b"", b"agentless: other bytes in the image archive\n")


def test_what_is_no_file_in_a_shared_folder_is_not_read() -> None:
    """A link to a device would have no end."""
    values = {"docker": ["docker"], "unpack": None, "file": "/dev/zero", "id_format": "f", "files": ()}
    script = renderer.script("image-take.sh.j2", layers="", room=0, small=0, config="c", **values)
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (1, b"agentless: no /dev/zero\n")


@shells
def test_the_manifest_of_compressed_layers_is_what_the_controller_says(shell: list[str]) -> None:
    files = [("oci-layout", "{}"), ("index.json", "{'\u00e9\n'}" * 100)]
    found = members(filtered(shell, archive("oci"), OF_BLOBS, files).stdout)
    assert found == {"config.json": CONFIG, **{name: text.encode() for name, text in files}} | {
        name: data for name, data in found.items() if name.endswith(".tar")
    }
    assert sorted(data for name, data in found.items() if name.endswith(".tar")) == sorted(DATA)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    """A shell of this machine."""
    node = NodeConfig("here", "", connection="local")
    session = Session(plugins.load("remote.transports", "local").make(node, SshFiles(tmp_path, tmp_path)))
    await session.connect()
    yield session
    await session.close()


@forms
@pytest.mark.parametrize("packer", [None, "zstd", "gzip"])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
async def test_the_layers_that_are_lacking_come_whole(
    session: Session, form: str, packer: str | None, kept: int, docker: str, tmp_path: Path
) -> None:
    (tmp_path / "saved").write_bytes(archive(form))
    images = DockerImages(Commands(NodeConfig("here", "", docker=(docker,)), renderer, DOCKER), str)
    spool = LayerSpool()
    command = images.save(IMAGE.id, layers.unwanted(IMAGE, kept), packer)
    async with session.stream(command) as stream:
        await fetch(stream, IMAGE, kept, packer, spool)
    assert await spool.configuration() == CONFIG
    assert set(spool.layers) == set(LAYERS[kept:])
    for data, layer in list(zip(DATA, LAYERS, strict=True))[kept:]:
        spooled = await spool.find(layer)
        came = b"".join([piece async for piece in spool.read(spooled)])
        unpack = ["zstd", "-dc"] if packer == "zstd" else ["gzip", "-dc"] if packer else ["cat"]
        assert through(unpack, came)[: spooled.size] == data
    spool.close()


async def test_an_archive_that_breaks_off_is_none(session: Session, docker: str, tmp_path: Path) -> None:
    (tmp_path / "saved").write_bytes(archive("legacy")[:300_000])
    script = renderer.script("image-save.sh.j2", docker=[docker], image=IMAGE.id, skip=" ", pack=None)
    spool = LayerSpool()
    with pytest.raises(BrokenOffError):
        async with session.stream(Command(script)) as stream:
            await fetch(stream, IMAGE, 0, None, spool)
    spool.close()
