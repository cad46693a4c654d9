"""An engine that hands out no GPUs gets no task that needs one, and everybody is told why, in doctor's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.engines.dialect import EngineAnswer
from agentless.engines.docker import info
from agentless.gpus.amd.vendor import Amd
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.engine import ToolkitFacts, Way
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig, WslFacts
from agentless.model.scheduling.needs import parse_target
from agentless.rules.explain.obstacles import never, obstacles, refusal
from agentless.rules.nodes.checks.gpus import toolkit
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies.pack import cost
from agentless.rules.views.publish import node_view
from tests.pure.build import NOW, cluster, reading, seen, spec, task

KIT = Nvidia.toolkit
assert KIT


def node(name: str = "node1", way: Way | None = None, cdi: frozenset[str] = frozenset()) -> Any:
    fix = KIT.lists if way == "cdi" else KIT.fixes["docker"]
    engine = EngineFacts("28.5.2", {"nvidia": ToolkitFacts(way, fix)}, containers=(), cdi=cdi)
    gpus = tuple(reading(name, index, vendor="nvidia") for index in range(2))
    return seen(name, engine=engine, sample=GpuSample(gpus))


def start(on: Cluster, target: str, **wants: Any) -> Any:
    wish = task("t1", state="pending", spec=spec(needs=parse_target(target), **wants))
    return plan(on, [wish], NOW, {None: cost}).starts.get("t1")


def said_by_doctor(on: Cluster) -> tuple[str, str]:
    check = toolkit(on.nodes["node1"], "", "install it")
    return check.verdict, check.detail


def test_who_wants_a_gpu_of_it_is_refused_in_doctors_words() -> None:
    on, wish = cluster(node()), spec(needs=parse_target("node1::0"))
    verdict, words = said_by_doctor(on)
    assert (verdict, words) == ("failed", f"Docker on node1 cannot give GPUs to containers; {KIT.fixes['docker']}")
    assert start(on, "node1::0") is None
    assert words in str(refusal(on, wish))
    assert words in str(never(on, wish))


def test_who_can_go_elsewhere_does() -> None:
    on = cluster({"node1": node(), "node2": node("node2", "runtime")})
    assert start(on, "1x").node == "node2"


def test_a_task_without_gpus_or_without_a_container_does_not_mind() -> None:
    on = cluster(node())
    assert start(on, "node1").node == "node1"
    bare = spec(needs=parse_target("node1::0"), image=None, container="NULL")
    assert not obstacles(on.nodes["node1"], bare, "me", NOW)


@pytest.mark.parametrize(("way", "words"), [("runtime", "Docker can use GPUs"), ("cdi", "Docker can use GPUs by CDI")])
def test_it_is_said_how_gpus_are_given(way: Way, words: str) -> None:
    uuids = [gpu.uuid for gpu in node().sample.gpus]
    on = cluster(node(way=way, cdi=frozenset(f"nvidia.com/gpu={uuid}" for uuid in uuids)))
    assert said_by_doctor(on) == ("ok", words)
    assert start(on, "node1::0").node == "node1"


def test_docker_desktop_gives_gpus_in_wsl2_without_a_toolkit_that_it_tells_of() -> None:
    """And nowhere else: on Linux its containers run in a virtual machine without GPUs."""
    wsl = HostFacts(wsl=WslFacts(has_gpu=True, has_nvidia=True))
    desktop = replace(node(), engine=replace(node().engine, desktop=True))
    there = cluster(replace(desktop, host=wsl))
    assert start(there, "node1::0")
    assert said_by_doctor(there) == ("ok", "Docker Desktop gives GPUs in WSL2")
    assert node_view(there.nodes["node1"]).nvidia_docker
    for seen_of in (desktop, replace(node(), host=wsl)):
        on = cluster(seen_of)
        assert start(on, "node1::0") is None
        assert said_by_doctor(on)[0] == "failed"
        assert not node_view(on.nodes["node1"]).nvidia_docker
    assert info.is_desktop({"OperatingSystem": "Docker Desktop"})
    assert not info.is_desktop({"OperatingSystem": "Debian GNU/Linux 12 (bookworm)"})


# ---------------------------------------------------------------- a list that is older than a card


def stale() -> Any:
    """GPU 1 is not in the list of the engine."""
    return node(way="cdi", cdi=frozenset({f"nvidia.com/gpu={reading('node1', 0).uuid}"}))


UNLISTED = f"Docker on node1 does not find it in a CDI file; run there: {KIT.lists}"


def test_a_gpu_that_the_list_lacks_is_excluded_with_the_fix_and_the_others_are_used() -> None:
    on = cluster(stale())
    assert [(gpu.state, gpu.reason) for gpu in on.nodes["node1"].gpus] == [("free", ""), ("excluded", UNLISTED)]
    assert start(on, "node1::1") is None
    assert start(on, "node1::0,1") is None
    assert start(on, "1x").gpus == (0,)
    for words in (refusal, never):
        assert f"GPU 1 is excluded: {UNLISTED}" in str(words(on, spec(needs=parse_target("node1::1"))))


def test_a_task_without_a_container_may_have_it() -> None:
    on = cluster(stale())
    assert start(on, "node1::1", image=None, container="NULL").gpus == (1,)


def test_a_list_that_could_not_be_read_keeps_no_gpu_out() -> None:
    assert start(cluster(node(way="cdi")), "node1::1").gpus == (1,)


def test_an_engine_with_a_runtime_asks_no_list() -> None:
    on = cluster(node(way="runtime", cdi=frozenset({"nvidia.com/gpu=0"})))
    assert start(on, "node1::1").gpus == (1,)


# ---------------------------------------------------------------- several vendors


def mixed(way: Way | None = "runtime") -> Any:
    """Two GPUs of a vendor with a toolkit, and two of one that needs none."""
    sample = node(way=way).sample
    others = tuple(reading("node1", index, vendor="amd", name="AMD Instinct MI100") for index in (2, 3))
    return replace(node(way=way), sample=replace(sample, gpus=(*sample.gpus, *others)))


def test_an_engine_without_one_vendors_toolkit_gives_the_gpus_of_another() -> None:
    on = cluster(mixed(way=None))
    assert start(on, "1x").gpus == (2,)
    assert start(on, "node1::0") is None
    assert KIT.fixes["docker"] in str(never(on, spec(needs=parse_target("node1::0"))))


def test_gpus_that_are_given_without_a_list_are_not_looked_for_in_it() -> None:
    """AMD's names in it are numbers, and a launch looks for the right one."""
    cdi = frozenset({"amd.com/gpu=0", "amd.com/gpu=all", f"nvidia.com/gpu={reading('node1', 0).uuid}"})
    lines = ["cdi amd.com/gpu /etc/cdi/amd.json"]
    asked = EngineAnswer(NodeConfig("node1", "h"), {}, lines, {}, "docker", (Amd.toolkit,), 0.0, 0.0)  # type: ignore[arg-type]
    seen_ = mixed(way="cdi")
    kits = {**seen_.engine.toolkits, **asked.toolkits(lambda _: "cdi")}
    on = cluster(replace(seen_, engine=replace(seen_.engine, toolkits=kits, cdi=cdi)))
    assert [gpu.state for gpu in on.nodes["node1"].gpus] == ["free", "excluded", "free", "free"]
    assert start(on, "node1::3").gpus == (3,)


def test_a_task_gets_gpus_of_one_vendor() -> None:
    on = cluster(mixed())
    assert start(on, "node1::2,3").gpus == (2, 3)
    assert start(on, "2x").gpus == (0, 1)
    for target, words in (
        ("node1::1,2", "GPUs 1,2 of node1 are of different vendors (nvidia, amd); a task gets GPUs of one vendor"),
        ("3x", "needs 3 GPUs of one vendor; node1 has 2 of nvidia and 2 of amd"),
    ):
        assert start(on, target) is None
        assert words in str(never(on, spec(needs=parse_target(target))))


def test_gpus_of_one_vendor_are_waited_for() -> None:
    held = task("t0", "node1::0", spec=spec(needs=parse_target("node1::0")))
    on = cluster(mixed(), (held, task("t2", "node1::2", spec=spec(needs=parse_target("node1::2")))))
    assert start(on, "2x") is None
    found = obstacles(on.nodes["node1"], spec(needs=parse_target("2x")), "me", NOW)
    assert str(found[0]) == "needs 2 GPUs of one vendor; node1 has free 1 of nvidia and 1 of amd"
