"""Images between engines of different versions, each with its own image store or with containerd's."""

from __future__ import annotations

import asyncio
import contextlib
import math
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentless.controller.app import Controller
from agentless.controller.clock import SystemClock
from agentless.controller.images import distribution, upload
from agentless.controller.images.distribution import ImageDistribution
from agentless.errors import Unreachable
from tests.lab import Kind, Lab, Node, requirements
from tests.lab.roots import is_made
from tests.real.cli import Cli, until
from tests.real.test_sync import MB, TAG, At, World, failed, is_not_fooled, layer, layers_of, said, sent, stand_in

if MISSING := requirements():
    pytest.skip(f"no lab on this machine: {'; '.join(MISSING)}", allow_module_level=True)
if not is_made("sid"):
    pytest.skip("no root of sid yet (make engines makes it)", allow_module_level=True)

NODES = ("old", "classic", "new", "newer")
PAIRS = [(one, other) for one in NODES for other in NODES if one != other]
MIDDLE = [("old", "middle"), ("middle", "classic"), ("new", "middle"), ("middle", "new")]
"""Docker 26 with containerd's store, where it was new."""
LARGE, SMALL = 12, 1
"""Megabytes of a base that both nodes have, and of what is changed in it."""

FORGE = (
    'case " $* " in *" save "*) /usr/bin/docker "$@" | sed s/agentless-innocent/agentless-tampered/g ;; '
    '*) exec /usr/bin/docker "$@" ;; esac'
)
HELD = "docker image ls --all --quiet --filter label=agentless.partial"


@pytest.fixture(scope="module")
def stores() -> Iterator[Lab]:
    """Docker 20.10 and 28 with stores of their own, and two of 28 with containerd's."""
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_node("old")
        lab.add_suite_node("classic", Kind())
        lab.add_suite_node("new", Kind(containerd=True))
        lab.add_suite_node("newer", Kind(containerd=True))
        yield lab


@pytest.fixture
def middle(stores: Lab) -> None:
    if not is_made("trixie"):
        pytest.skip("no root of trixie yet (make engines makes it)")
    if "middle" not in stores.nodes:
        stores.add_suite_node("middle", Kind("trixie", containerd=True))


@pytest.fixture
async def world(stores: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("HOME", str(stores.home))
    monkeypatch.setattr(upload, "STEP", 4 * MB)
    monkeypatch.setattr(upload, "TELL_EVERY", 0.0)  # else what is done at a share of a transfer may come after it
    controller = Controller(tmp_path, stores.inventory, SystemClock())
    await controller.start()
    await asyncio.gather(*(link.ready() for link in controller.nodes.links.values()))
    yield World(stores, controller, ImageDistribution())
    await controller.close()


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_a_small_change_of_a_large_image_is_all_that_goes(world: World, source: str, target: str) -> None:
    await goes(world, source, target)


@pytest.mark.slow
@pytest.mark.usefixtures("middle")
@pytest.mark.parametrize(("source", "target"), MIDDLE)
async def test_so_it_is_with_docker_26(world: World, source: str, target: str) -> None:
    await goes(world, source, target)


async def goes(world: World, source: str, target: str) -> None:
    """A base, as a whole; then the change, of which a container sees the same bytes."""
    one, other = world.node(source), world.node(target)
    name = f"{source}-{target}"
    base = layer(one, "busybox", f"base:{name}", LARGE)
    first = sent(await world.send(base, target, source=source), target)
    assert first.sent > LARGE * MB
    changed = layer(one, f"base:{name}", f"changed:{name}", SMALL)
    second = sent(await world.send(changed, target, source=source), target)
    print(f"\n{source} to {target}: {first.sent} then {second.sent}")
    assert SMALL * MB < second.sent < 1.3 * SMALL * MB
    assert said(one, layers_of(changed)) == said(other, layers_of("agentless/env:1"))
    sums = "docker run --rm {} sh -c 'cat /base-* /changed-* | sha256sum'"
    assert said(one, sums.format(changed)) == said(other, sums.format("agentless/env:1"))
    again = sent(await world.send(changed, target, source=source), target)
    assert again.sent < 0.1 * MB
    said(other, "docker image rm agentless/env:1")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["classic", "newer"])
async def test_a_layer_that_was_damaged_on_the_way_is_refused(world: World, target: str) -> None:
    """What the source saves has other bytes in a layer than the image says; nothing of it is kept."""
    one = world.node("classic" if target == "newer" else "old")
    make = "docker run --name make busybox sh -c 'echo agentless-inno\"\"cent >/f' && docker commit make innocent:1"
    said(one, f"{make}; docker rm make")
    innocent = said(one, "docker image inspect -f '{{.Id}}' innocent:1").strip()
    before = world.has(target)
    with stand_in(one, "docker", FORGE):
        error = failed(await world.send(innocent, target, source=one.name), target)
    assert "does not match its ID" in str(error)
    assert world.has(target) == before


@pytest.mark.slow
async def test_a_compressed_layer_that_was_damaged_is_refused(world: World) -> None:
    one, before = world.node("new"), world.has("newer")
    image = layer(one, "busybox", "whole:1", SMALL)
    harm = "import sys; d = bytearray(sys.stdin.buffer.read()); d[d.index(b'\\x1f\\x8b') + 100000] ^= 255"
    other = f'case " $* " in *" save "*) /usr/bin/docker "$@" | python3 -c "{harm}; sys.stdout.buffer.write(d)" ;; '
    other += '*) exec /usr/bin/docker "$@" ;; esac'
    with stand_in(one, "docker", other):
        error = failed(await world.send(image, "newer", source="new"), "newer")
    assert "does not match its ID" in str(error)
    assert world.has("newer") == before


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("new", "old"), ("old", "new"), ("new", "newer"), ("classic", "new")])
async def test_a_shared_folder_takes_it_across_stores(world: World, source: str, target: str) -> None:
    await shared_takes(world, source, target)


async def shared_takes(world: World, source: str, target: str) -> None:
    """An image through a shared folder, of which nothing is left there."""
    one, other, folder = world.node(source), world.node(target), world.lab.root / "shared"
    folder.mkdir(exist_ok=True)
    image = layer(one, "busybox", f"shared:{source}-{target}", SMALL)
    found = sent(await world.send(image, target, source=source, via="shared", shared_dir=str(folder)), target)
    print(f"\n{source} to {target}, shared: {found.sent} of {found.size}")
    assert found.how == "shared"
    assert said(one, layers_of(image)) == said(other, layers_of(TAG))
    assert list(folder.iterdir()) == []
    said(other, f"docker image rm {TAG}")


@pytest.mark.slow
@pytest.mark.usefixtures("middle")
@pytest.mark.parametrize(("source", "target"), [("old", "middle"), ("new", "middle"), ("middle", "classic")])
async def test_so_does_it_with_docker_26(world: World, source: str, target: str) -> None:
    await shared_takes(world, source, target)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["names", "bytes"])
@pytest.mark.parametrize(("source", "target"), [("new", "newer"), ("new", "old"), ("old", "new"), ("classic", "new")])
async def test_a_hostile_archive_is_taken_for_what_was_meant_or_refused(
    world: World, source: str, target: str, harm: str
) -> None:
    folder = world.lab.root / "shared"
    folder.mkdir(exist_ok=True)
    image = layer(world.node(source), "busybox", f"hostile-{harm}:{source}-{target}", 3)
    await is_not_fooled(world, image, harm, source, target, via="shared", shared_dir=str(folder))
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("old", "new"), ("old", "classic")])
async def test_it_goes_straight_from_node_to_node_across_stores(
    world: World, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If that is asked for; by itself only to an engine with its own store, where only what is lacking goes."""
    one, other = world.node(source), world.node(target)
    image = layer(one, "busybox", f"straight:{source}-{target}", SMALL)
    with stand_in(one, "ssh", f'exec /usr/bin/ssh -F {world.lab.home}/.ssh/config "$@"'):
        found = sent(await world.send(image, target, source=source, via="straight"), target)
        assert found.how == "straight"
        assert said(one, layers_of(image)) == said(other, layers_of(TAG))
        said(other, f"docker image rm {TAG}")
        monkeypatch.setattr(distribution, "SLOW", math.inf)
        again = sent(await world.send(image, target, source=source), target)
    print(f"\n{source} to {target}, straight: {found.sent}, then by itself {again.how}: {again.sent}")
    assert again.how == ("straight" if target == "classic" else "layers")
    assert again.sent < 1.3 * SMALL * MB
    said(other, f"docker image rm {TAG}")


@pytest.mark.slow
async def test_a_cut_link_costs_no_layer_that_containerd_has(world: World) -> None:
    """Half of the image is there, in images without a name; the next try sends the rest, and they are gone."""
    one, other = world.node("classic"), world.node("new")
    base = "busybox"
    for number in range(4):
        image = layer(one, base, base := f"cut-{number}:1", 3)
    error = failed(await world.send(image, "new", source="classic", tell=At(0.6, other.kill_connections)), "new")
    assert isinstance(error, Unreachable)
    await asyncio.to_thread(until, lambda: said(other, HELD))
    found = sent(await world.send(image, "new", source="classic"), "new")
    assert 0 < found.sent < 3 * 3.1 * MB
    assert said(other, HELD) == ""
    said(other, f"docker image rm {TAG}")


# ------------------------------------------------------------------------ envs


def inventory(stores: Lab) -> str:
    nodes = "".join(f"  {name}: {{host: {stores.nodes[name].host}}}\n" for name in NODES)
    defaults = f"{{user: root, identity_file: {stores.identity}, image: busybox}}"
    return f"version: 1\ndefaults: {defaults}\nnodes:\n{nodes}"


def person(stores: Lab, name: str) -> Cli:
    """Somebody with these nodes, all of which answer."""
    cli = Cli(stores, name, inventory(stores))
    until(lambda: [each["state"] for each in cli.get("/v1/gpus")] == ["free"] * 2 * len(NODES))
    return cli


@pytest.fixture
def agentless(stores: Lab) -> Iterator[Cli]:
    cli = person(stores, "main")
    yield cli
    for each in cli.get("/v1/vps"):
        cli("vps", "rm", each["name"], "--force", "--yes")
    for each in cli.get("/v1/envs"):
        cli("env", "rm", each["name"], "--yes", code=None)
    cli.close()


def made(agentless: Cli, name: str, node: str, script: str) -> None:
    """An env on a node with one version, in which the script has run."""
    agentless("env", "create", name, "--from", "busybox", "--on", node)
    agentless("env", "exec", name, "--", "sh", "-c", script)
    agentless("env", "save", name)


@pytest.mark.slow
@pytest.mark.parametrize("home", ["old", "new"])
def test_an_env_is_one_version_on_all_engines_and_runs_on_each(agentless: Cli, home: str) -> None:
    made(agentless, "proof", home, "echo made on one >/file")
    rows = agentless.json("env", "push", "proof")["nodes"]
    assert {row["error"] for row in rows} == {None}
    [version] = agentless.json("env", "history", "proof")["versions"]
    assert sorted(version["nodes"]) == sorted(NODES)
    for node in NODES:
        assert agentless("run", "--node", node, "--container", "proof", "--", "cat", "/file").out == "made on one\n"
    assert agentless("env", "push", "proof").out.startswith("proof:1 is already on all nodes")


@pytest.mark.slow
def test_what_was_forgotten_is_one_version_again(agentless: Cli, stores: Lab) -> None:
    """Somebody who has never seen it finds it on engines of both stores."""
    made(agentless, "known", "new", "echo 1 >/file")
    agentless("env", "push", "known")
    with contextlib.closing(person(stores, "other")) as other:
        [version] = other.json("env", "history", "known")["versions"]
        assert sorted(version["nodes"]) == sorted(NODES)
        for node in ("old", "newer"):
            assert other("run", "--node", node, "--container", "known:1", "--", "cat", "/file").out == "1\n"


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("new", "old"), ("classic", "newer")])
def test_a_task_brings_its_env_and_its_files_across_stores(
    agentless: Cli, source: str, target: str, tmp_path: Path
) -> None:
    made(agentless, "carried", source, "echo 1 >/file")
    tmp_path.joinpath("code").mkdir()
    tmp_path.joinpath("code", "more").write_text("2\n")
    words = ["--node", target, "--container", "carried:1", "--upload", f"{tmp_path}/code"]
    assert agentless("run", *words, "--", "sh", "-c", "cat /file code/more").out == "1\n2\n"


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("new", "old"), ("classic", "newer"), ("new", "newer")])
def test_an_exported_env_is_imported_as_the_version_that_it_was(
    agentless: Cli, source: str, target: str, tmp_path: Path
) -> None:
    made(agentless, "filed", source, "echo 1 >/file")
    agentless("env", "export", "filed", str(tmp_path / "filed.tar"))
    agentless("env", "import", str(tmp_path / "filed.tar"), "--on", target)
    [version] = agentless.json("env", "history", "filed")["versions"]
    assert sorted(version["nodes"]) == sorted([source, target])
    assert agentless("run", "--node", target, "--container", "filed", "--", "cat", "/file").out == "1\n"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["classic", "newer"])
def test_a_node_that_sends_another_image_than_the_version_is_found_out(
    agentless: Cli, stores: Lab, target: str
) -> None:
    """It says that it has the version, and describes and saves another image instead, in which all hashes are right."""
    made(agentless, "swapped", "old", "echo 1 >/file")
    agentless("env", "push", "swapped", "new")
    liar = stores.nodes["new"]
    meant = said(liar, "docker image inspect -f '{{.Id}}' agentless/swapped:1").strip()
    make = "docker run --name make agentless/swapped:1 sh -c 'echo evil >/file' && docker commit make evil:1 >/dev/null"
    other = said(liar, f"{make}; docker rm make >/dev/null; docker image inspect -f '{{{{.Id}}}}' evil:1").strip()
    lie = """case $* in *'"tags"'*) exec /usr/bin/docker "$@" ;; esac; """
    lie += f'for word; do shift; [ "$word" != {meant} ] || word={other}; set -- "$@" "$word"; done; '
    lie += f'case "$1" in image) /usr/bin/docker "$@" | sed s/{other}/{meant}/ ;; *) exec /usr/bin/docker "$@" ;; esac'
    with stand_in(liar, "docker", lie):
        said_of_it = agentless("env", "push", "swapped", target, code=1)
    assert f"new sent {target} a different image than swapped:1" in said_of_it.out + said_of_it.err
    said(stores.nodes[target], "! docker image inspect agentless/swapped:1 >/dev/null 2>&1")
    [version] = agentless.json("env", "history", "swapped")["versions"]
    assert sorted(version["nodes"]) == ["new", "old"]
    said(liar, "docker image rm evil:1")


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("new", "classic"), ("old", "new")])
def test_a_vps_begins_with_a_snapshot_from_the_other_store(agentless: Cli, source: str, target: str) -> None:
    agentless("vps", "create", "first", f"{source}::0")
    agentless("vps", "ssh", "first", "--", "echo kept >/file")
    agentless("vps", "snapshot", "first")
    agentless("vps", "create", "second", f"{target}::0", "--from", "first:1")
    assert agentless("vps", "ssh", "second", "--", "cat /file").out == "kept\n"


def switch(node: Node, *, containerd: bool) -> None:
    """Restart its engine with the other store."""
    engine = node._engine
    assert engine
    node.stop_docker()
    engine.configure({"features": {"containerd-snapshotter": containerd}})
    node.start_docker()


@pytest.mark.slow
def test_an_engine_that_is_switched_to_the_other_store_gets_its_envs_again(agentless: Cli, stores: Lab) -> None:
    """Its images are still on its disk, and it does not show them."""
    made(agentless, "stays", "old", "echo 1 >/file")
    node = stores.nodes["classic"]
    agentless("env", "push", "stays", "classic")
    try:
        for containerd in (True, False):
            switch(node, containerd=containerd)
            run = agentless("run", "--node", "classic", "--container", "stays", "--", "cat", "/file")
            assert run.out == "1\n"
    finally:
        switch(node, containerd=False)
