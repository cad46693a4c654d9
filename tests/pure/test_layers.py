"""Which layers travel, what they are called in an archive, and the archive that is made of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.formats.tar_writing import padded
from agentless.model.images.image import Image
from agentless.rules.images import layers
from agentless.rules.images.blobs import digest_of

# Recorded from Docker 20.10.24: an image of five layers, and the folders in which it saves all but the top one.
RECORDED = Image(
    id="sha256:9fda4f65b2f2a34024411da069c28fcbcc4a2a15e9e9a4b85c705aed9feb368a",
    layers=(
        "sha256:ee38e675845550133689104fa63f6a15afba026bd3c136c0adacd6fb40f5fd27",
        "sha256:c52f0f41c951446eb4f6dad2a077d07ecaf1b42831a59f337da6759e590dff39",
        "sha256:a17feecfec6c78965b2bb2849f09adbde3750af855a298324dc356626fc701e6",
        "sha256:5d51eb8cbd938dcf0342e981adeb69e85e570396cb7423b078903e6defc700de",
        "sha256:bd7b6ce617d508ed2d4bf66d9c99e7ab98b5d35951589323eef552558bc8d956",
    ),
    size=13984226,
)
FOLDERS = (
    "6ad9f714a17946e7f3d1946f4bf114d3f6869b6d5e29724c9e4f7ba6f6a4ad70",
    "617ebce63608ccfc59b439b772df6bb8e4f149ec708c673fcb14c963d9d9b74d",
    "b1e3d37b18b585be1211a62f579862788e336b49492e3d61d4e946ced04c9fb6",
    "8e35273e5c0e617295babaf30bbd18e7806b0517d3174863827d640f2429820b",
)
chains = st.lists(st.sampled_from("abc"), max_size=6)


def test_the_folders_of_old_engines_are_known_beforehand() -> None:
    names = layers.layer_files(RECORDED)
    for folder, layer in zip(FOLDERS, RECORDED.layers, strict=False):
        assert names[f"{folder}/layer.tar"] == layer


def test_the_files_of_new_engines_are_named_by_their_hash() -> None:
    names = layers.layer_files(RECORDED)
    assert [names[f"blobs/sha256/{layer[7:]}"] for layer in RECORDED.layers] == list(RECORDED.layers)


def test_an_engine_in_another_time_zone_names_them_by_it() -> None:
    berlin = Image(RECORDED.id, RECORDED.layers, 0, zone="1970-01-01T01:00:00+01:00")
    assert set(layers.layer_files(RECORDED)) < set(layers.layer_files(berlin))


def test_what_the_target_has_is_not_wanted_and_what_it_lacks_is() -> None:
    unwanted = layers.unwanted(RECORDED, 3)
    assert {f"{folder}/layer.tar" for folder in FOLDERS[:3]} < set(unwanted)
    assert not [name for name in unwanted if name.startswith(FOLDERS[3])]


def test_who_has_all_layers_needs_none_whatever_they_are_called() -> None:
    assert "*/layer.tar" in layers.unwanted(RECORDED, 5)
    assert "*/layer.tar" not in layers.unwanted(RECORDED, 4)


def test_a_layer_that_comes_again_above_is_wanted() -> None:
    twice = Image("sha256:x", (*RECORDED.layers[:2], RECORDED.layers[0]), 0)
    assert f"{FOLDERS[0]}/layer.tar" not in layers.unwanted(twice, 2)
    assert f"{FOLDERS[1]}/layer.tar" in layers.unwanted(twice, 2)


@given(chains, st.lists(chains, max_size=4))
def test_only_a_chain_from_the_bottom_can_be_reused(wanted: list[str], stores: list[list[str]]) -> None:
    kept = layers.common_layers(wanted, stores)
    assert kept == 0 or any(chain[:kept] == wanted[:kept] for chain in stores)
    assert not any(len(wanted) > kept and chain[: kept + 1] == wanted[: kept + 1] for chain in stores)


def test_the_archive_is_one_that_docker_reads() -> None:
    config = b'{"rootfs":{}}'
    data = b"a layer"
    archive = layers.layer_header("sha256:ab", len(data)) + data.ljust(512, b"\0")
    archive += layers.head_of(config, ["sha256:ab"], ["agentless/env:1"])
    digest = hashlib.sha256(config).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == ["ab.tar", f"{digest}.json", "manifest.json"]
        manifest = json.loads(tar.extractfile("manifest.json").read())
        assert tar.extractfile("ab.tar").read() == data
    assert manifest == [{"Config": f"{digest}.json", "RepoTags": ["agentless/env:1"], "Layers": ["ab.tar"]}]
    assert digest_of(config) == f"sha256:{digest}"


def test_a_layer_above_8_gib_has_its_size() -> None:
    assert tarfile.TarInfo.frombuf(layers.layer_header("sha256:x", 9 << 30), "utf-8", "strict").size == 9 << 30


def test_everybody_may_read_a_file_of_the_archive_and_only_its_owner_may_write_it() -> None:
    assert tarfile.TarInfo.frombuf(layers.layer_header("sha256:x", 1), "utf-8", "strict").mode == 0o644


@pytest.mark.parametrize(("size", "takes"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
def test_a_file_takes_whole_blocks(size: int, takes: int) -> None:
    assert padded(size) == takes


def test_an_archive_without_a_name_says_so_as_docker_does() -> None:
    with tarfile.open(fileobj=io.BytesIO(layers.head_of(b"{}", [], []))) as tar:
        [entry] = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
    assert entry["RepoTags"] is None


def test_the_manifest_of_another_image_is_not_believed() -> None:
    names = [f"{number}/layer.tar" for number in range(len(RECORDED.layers))]
    found = layers.by_manifest(json.dumps([{"Layers": names}]).encode(), RECORDED)
    assert found == dict(zip(names, RECORDED.layers, strict=True))
    with pytest.raises(ValueError, match="longer"):
        layers.by_manifest(json.dumps([{"Layers": names[1:]}]).encode(), RECORDED)


def test_what_holds_layers_meanwhile_says_for_whom() -> None:
    fields = json.loads(layers.partial(RECORDED, 2))
    assert fields["config"]["Labels"] == {"agentless.partial": RECORDED.id}
    assert fields["rootfs"]["diff_ids"] == list(RECORDED.layers[:2])


@pytest.mark.parametrize(
    "manifest", [b"", b"7", b"[7]", b"[]", b"[{}]", b"[{}, {}]", b'[{"Layers": 7}]', b"[" * 100_000, b'{"Layers": []}']
)
def test_a_manifest_of_another_shape_is_none(manifest):
    with pytest.raises(ValueError):
        layers.by_manifest(manifest, Image("sha256:i", ("sha256:a",), 1))
