"""One image in engines with different image stores: that it is one, and the archive that containerd's store takes."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from agentless.engines.docker.commands import Commands
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.images import DockerImages, _files
from agentless.errors import LayerMissing, RuntimeFailed
from agentless.formats.tar_writing import padding
from agentless.model.command import Result
from agentless.model.images.image import Blob, Image, ImagePresence
from agentless.model.nodes.node import NodeConfig
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.images import layers
from agentless.rules.images.blobs import BlobArchive, digest_of, file_of, parse_blobs
from tests.engines import docker_engine
from tests.pure.build import SIGNER

RECORDED = Path(__file__).parent / "data" / "docker" / "images"
NODE = NodeConfig("node1", "h")
IMAGES = DockerImages(Commands(NODE, Renderer([template_dir()]), DOCKER), str)
ENVS = docker_engine(NODE, Renderer([template_dir()]), SIGNER).envs
# What Docker 28 with containerd's store calls the image, and what engines with a store of their own do.
MANIFEST = "sha256:2a0e8f3704319cf92a4c783f73a0a2957d86498008df03eedce3a7f5c1ddb5bd"
CONFIG = "sha256:ec3d286ed78ef6d5a72824f9dbd18e7ff1b437a1d9f1515bd9ce5763cc0d303e"
LAYERS = (
    "sha256:ee38e675845550133689104fa63f6a15afba026bd3c136c0adacd6fb40f5fd27",
    "sha256:54281ae8f95796d5e2abffaf4085d9308dde0b85acde6854efbd732e3e7cbed6",
)
COMMITTED = "sha256:95850539b7839b0286a9eb0a1e29e78baec79e78d4c0a5ffa04d525d5865db68"
"""The top layer as the engine has it: compressed."""


@pytest.fixture
def image() -> Image:
    return IMAGES.parse_description(MANIFEST, Result(0, (RECORDED / "described-containerd-28.txt").read_bytes()))


def test_the_description_of_another_image_is_refused():
    described = Result(0, (RECORDED / "described-containerd-28.txt").read_bytes())
    with pytest.raises(RuntimeFailed, match="described another image"):
        IMAGES.parse_description(f"sha256:{'0' * 64}", described)


def test_the_content_of_an_image_is_the_same_in_every_store():
    lines = (RECORDED / "one-image-in-three-stores.jsonl").read_bytes().splitlines()
    facts = [ENVS.parse_facts(Result(0, line)) for line in lines]
    assert len({each.id for each in facts}) == 3
    assert len({each.content for each in facts}) == 1
    assert facts[0].content


@pytest.mark.parametrize("change", [{"labels": {"agentless.env": "y"}}, {"user": "1"}, {"rootfs": {"Layers": ["a"]}}])
def test_another_configuration_or_other_layers_are_another_content(change):
    line = (RECORDED / "one-image-in-three-stores.jsonl").read_bytes().splitlines()[0]
    other = json.dumps({**json.loads(line), **change}).encode()
    assert ENVS.parse_facts(Result(0, line)).content != ENVS.parse_facts(Result(0, other)).content


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Healthcheck", {"Test": ["CMD-SHELL", "curl evil"]}),
        ("StopSignal", "SIGUSR1"),
        ("OnBuild", ["RUN evil"]),
        ("Shell", ["/evil"]),
        ("ExposedPorts", {"22/tcp": {}}),
    ],
)
def test_what_else_changes_what_runs_is_content_and_nothing_is_none(key, value):
    line = json.loads((RECORDED / "one-image-in-three-stores.jsonl").read_bytes().splitlines()[0])
    contents = [
        ENVS.parse_facts(Result(0, json.dumps({**line, "config": config}).encode())).content
        for config in ({}, None, {key: None}, {key: type(value)()}, {key: value})
    ]
    assert len(set(contents[:-1])) == 1
    assert contents[-1] != contents[0]


@pytest.mark.parametrize("rootfs", [{}, None, {"Layers": None}])
def test_an_image_with_a_blob_missing_has_no_content(rootfs):
    line = (RECORDED / "one-image-in-three-stores.jsonl").read_bytes().splitlines()[0]
    assert ENVS.parse_facts(Result(0, json.dumps({**json.loads(line), "rootfs": rootfs}).encode())).content == ""


def test_an_image_in_containerds_store_is_described_by_its_manifest(image):
    assert (image.id, image.config, image.layers, image.containerd) == (MANIFEST, CONFIG, LAYERS, True)
    assert [blob.digest for blob in image.blobs] == [LAYERS[0], COMMITTED]
    assert digest_of(image.manifest) == MANIFEST
    assert image.names == (MANIFEST, CONFIG)


def test_the_files_of_its_archive_are_named_by_their_own_hash(image):
    assert layers.layer_files(image) == {file_of(LAYERS[0]): LAYERS[0], file_of(COMMITTED): LAYERS[1]}
    assert layers.unwanted(image, 1) == [file_of(LAYERS[0])]


@pytest.mark.parametrize("files", [[], [b"{}"], [b"7"], [b"{"], [b'{"config": 7, "layers": []}'], [b"[" * 100_000]])
def test_files_that_are_no_manifest_are_none(files):
    with pytest.raises(ValueError):
        parse_blobs(LAYERS, files)


def test_a_manifest_with_other_layers_is_not_believed(image):
    config = (RECORDED / "described-containerd-28.txt").read_bytes().partition(b'{"created"')
    with pytest.raises(ValueError):
        parse_blobs((LAYERS[1], LAYERS[0]), [image.manifest, config[1] + config[2]])


def test_a_blob_is_named_only_by_a_hash(image):
    """A name with `..` would be a file elsewhere."""
    fields = json.loads(image.manifest)
    fields["layers"][0]["digest"] = "sha256:../../etc/passwd"
    config = json.dumps({"rootfs": {"diff_ids": LAYERS}}).encode()
    fields["config"]["digest"] = digest_of(config)
    with pytest.raises(ValueError):
        parse_blobs(LAYERS, [json.dumps(fields).encode(), config])


@pytest.mark.parametrize("key", ["Config", "config", "CONFIG", "Layers", "layer\u017f", "MediaType"])
def test_a_manifest_that_engines_read_otherwise_is_none(image, key):
    """For Go, keys are equal up to case, and the last one counts."""
    files = list(_files((RECORDED / "described-containerd-28.txt").read_bytes()))
    assert parse_blobs(LAYERS, files)[0] == CONFIG
    value = json.loads(image.manifest).get(key.replace("\u017f", "s").lower(), "")
    twice = image.manifest.rstrip()[:-1] + f",{json.dumps(key)}:{json.dumps(value)}}}".encode()
    with pytest.raises(ValueError, match="no manifest"):
        parse_blobs(LAYERS, [twice, *(data for data in files if data != image.manifest)])


def archive(image: Image, kept: tuple[Blob, ...], config: bytes = b"{}") -> tuple[tarfile.TarFile, str, BlobArchive]:
    """With a byte for each layer above those that are there."""
    form, data = BlobArchive(image, kept), b""
    for layer in image.layers[len(kept) :]:
        data += form.header(layer, 1) + b"x" + padding(1)
    end, made = form.end(config, len(image.layers))
    return tarfile.open(fileobj=io.BytesIO(data + end)), made, form


def test_an_archive_has_what_the_target_lacks_and_a_manifest_of_all(image):
    there = Blob(LAYERS[0], 7, "application/vnd.oci.image.layer.v1.tar+gzip")
    tar, made, form = archive(image, (there,))
    assert form.sent == {COMMITTED}
    assert tar.getnames()[0] == file_of(COMMITTED)
    assert file_of(LAYERS[0]) not in tar.getnames()
    manifest = json.loads(tar.extractfile(file_of(made)).read())
    assert [each["digest"] for each in manifest["layers"]] == [LAYERS[0], COMMITTED]
    assert manifest["layers"][0]["mediaType"] == there.kind
    [entry] = json.loads(tar.extractfile("index.json").read())["manifests"]
    assert (entry["digest"], entry["size"]) == (made, tar.getmember(file_of(made)).size)
    assert "annotations" not in entry  # a name would be given before it is known whether all is there


def test_a_layer_of_an_engine_with_its_own_store_is_a_blob_as_it_is():
    tar, made, _ = archive(Image("sha256:i", ("sha256:" + "a" * 64,), 1), ())
    [layer] = json.loads(tar.extractfile(file_of(made)).read())["layers"]
    assert layer == {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + "a" * 64, "size": 1}


def test_an_image_of_the_same_blobs_has_the_same_id_on_both_engines(image):
    config = b"{}"
    source = replace(image, config=digest_of(config))
    assert archive(source, source.blobs, config)[1] == MANIFEST
    assert archive(source, (replace(source.blobs[0], kind="other"), source.blobs[1]), config)[1] != MANIFEST


def test_the_nearest_image_is_the_one_with_most_layers(image):
    said = f'layers ["{LAYERS[0]}"] sha256:one\nlayers ["{LAYERS[0]}","{LAYERS[1]}","x"] sha256:two\n'
    said += f'driver [["driver-type","io.containerd.snapshotter.v1"]]\nlayers ["{LAYERS[0]}","y"] sha256:three\n'
    place = IMAGES.parse_look(image, Result(0, said.encode()))
    assert place == ImagePresence(False, 0, 2, containerd=True, nearest="sha256:two")


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [(COMMITTED, RuntimeFailed, "does not match its ID"), (LAYERS[0], LayerMissing, "does not have all layers")],
)
def test_a_blob_that_is_not_there_was_damaged_if_it_was_sent(missing, error, words):
    said = f"agentless: incomplete\nError unpacking image : content digest {missing}: not found\n"
    with pytest.raises(error, match=words):
        IMAGES.check_load(MANIFEST, Result(1, b"", said.encode()), {COMMITTED})


@pytest.mark.parametrize(
    "said",
    [
        b"image \n",
        b"image sha256:i " + b"9" * 5000 + b"\n",
        b"layers [{]\n",
        b"layers [" + b"9" * 5000 + b"]\n",
    ],
)
def test_a_look_that_cannot_be_read_is_one_sentence(image, said):
    with pytest.raises(RuntimeFailed, match="gave an answer that cannot be read"):
        IMAGES.parse_look(image, Result(0, said))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0" * 9,
        b'layers ["\xff"]\n',
        b"layers []\n",
        b"layers [null, 1, true]\n",
        b"layers [[]]\n",
        b"image\n",
        b"tool \x1b[2J\n" * 9999,
    ],
)
def test_a_look_that_says_nothing_of_use_is_that_the_node_has_nothing(image, said):
    place = IMAGES.parse_look(image, Result(0, said))
    assert (place.present, place.size, place.kept, place.nearest) == (False, 0, 0, "")
