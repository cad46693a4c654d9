"""Images between engines of different versions, each with its own image store or with containerd's."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentless.controller.app import Controller
from agentless.controller.clock import SystemClock
from agentless.controller.images import upload
from agentless.controller.images.distribution import ImageDistribution
from agentless.errors import Unreachable
from tests.lab import Kind, Lab, requirements
from tests.lab.roots import is_made
from tests.real.cli import until
from tests.real.test_sync import MB, TAG, At, World, failed, layer, layers_of, said, sent, stand_in

if MISSING := requirements():
    pytest.skip(f"no lab on this machine: {'; '.join(MISSING)}", allow_module_level=True)
if not is_made("sid"):
    pytest.skip("no root of sid yet (make engines makes it)", allow_module_level=True)

NODES = ("old", "classic", "new", "newer")
PAIRS = [(one, other) for one in NODES for other in NODES if one != other]
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
async def world(stores: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("HOME", str(stores.home))
    monkeypatch.setattr(upload, "STEP", 4 * MB)
    controller = Controller(tmp_path, stores.inventory, SystemClock())
    await controller.start()
    await asyncio.gather(*(link.ready() for link in controller.nodes.links.values()))
    yield World(stores, controller, ImageDistribution())
    await controller.close()


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_a_small_change_of_a_large_image_is_all_that_goes(world: World, source: str, target: str) -> None:
    """First the base, as a whole; then the change, of which a container sees the same bytes."""
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
