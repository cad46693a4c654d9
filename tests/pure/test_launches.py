"""Launches that come at about the same time are one script, and none of them waits for what another one starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentless.controller.nodes.cluster_link import ClusterLink
from agentless.controller.ownership import Ownership
from agentless.controller.tasks.launch import launches
from agentless.controller.tasks.launch.launches import Launches, _Wanted
from agentless.errors import Refused, RuntimeFailed, Timeout
from agentless.model.command import Command, Result
from agentless.model.containers.launch import Launch
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.task import Placement
from agentless.model.tasks.terms import Terms
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.pure.build import SIGNER, placement, spec, task

IDS = "a" * 64, "b" * 64


class Hanging:
    """A link over which a first script is alone, and of the two launches in the second one only the other starts."""

    def __init__(self) -> None:
        self.scripts, self.broken, self.node = 0, asyncio.Event(), NodeConfig("node1", "h")

    async def run(self, _: Command, heard: Callable[[bytes], None]) -> Result:
        self.scripts += 1
        if self.scripts == 1:
            return Result(0, IDS[0].encode())
        for said in (b"2", b"2|" + IDS[1].encode(), b"2|" + IDS[1].encode() + b"\n2=0\n"):
            heard(said)
        await self.broken.wait()
        raise Timeout("n1 did not finish a command within 120 s")


async def test_a_start_that_hangs_does_not_keep_the_others_from_being_known() -> None:
    runtime = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)
    link, of = Hanging(), Launches(Ownership(Path("/no/such")), lambda _: ())

    def launch(name: str, target: str) -> asyncio.Task[Result]:
        wanted = Launch(task(name, target, "assigning"), placement(target))
        return asyncio.create_task(of.run(link, runtime, wanted))  # type: ignore[arg-type]

    assert (await launch("t0", "node1")).out == IDS[0]
    hung, started = launch("t1", "node1::0"), launch("t2", "node1::1")
    assert (await started).out == IDS[1]
    assert not hung.done()
    link.broken.set()
    with pytest.raises(Timeout):
        await hung
    assert link.scripts == 2


async def test_what_is_wrong_with_one_launch_concerns_no_other_of_its_script() -> None:
    runtime = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)
    link, of = Hanging(), Launches(Ownership(Path("/no/such")), lambda _: ())
    lacks = task("t1", "node1", "assigning", spec=spec("true", secret_env=("TOKEN",)))
    wanted = [Launch(each, placement("node1")) for each in (lacks, task("t2", "node1", "assigning"))]
    lacking, fine = [asyncio.create_task(of.run(link, runtime, each)) for each in wanted]  # type: ignore[arg-type]
    assert (await fine).out == IDS[0]
    with pytest.raises(RuntimeFailed, match="TOKEN"):
        await lacking


async def test_who_waits_for_launches_that_do_not_end_is_told_so_and_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launches, "WAIT", 0.2)
    monkeypatch.setattr(launches, "PACE", 0.0)
    runtime = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)
    link, of = Hanging(), Launches(Ownership(Path("/no/such")), lambda _: ())
    link.scripts = 1  # the first hangs as well
    wanted = [Launch(task(f"t{n}", "node1", "assigning"), placement("node1")) for n in range(3)]
    running = []
    for each in wanted:
        running.append(asyncio.create_task(of.run(link, runtime, each)))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
    with pytest.raises(Refused, match="node1: earlier launches have not finished"):
        await running[2]
    assert link.scripts == 3
    assert not running[0].done()
    link.broken.set()
    await asyncio.gather(*running, return_exceptions=True)


def test_a_script_for_a_cluster_submits_no_more_of_a_limited_batch_than_may_run() -> None:
    """A whole batch has the limit itself; beside others that have been sent, only what these leave may start."""
    engine = docker_engine(NodeConfig("hpc", "h"), Renderer([template_dir()]), SIGNER)
    link, loop = ClusterLink.__new__(ClusterLink), asyncio.new_event_loop()
    limited = replace(spec(), terms=Terms(max_parallel=2))
    wanted = [Launch(replace(task(f"2b{at}", "hpc"), spec=limited, batch="2b"), Placement("hpc")) for at in range(3)]

    def limits(placed: set[str]) -> list[int | None]:
        of = Launches(Ownership(Path("/no/such")), lambda _: placed)
        some = [_Wanted(link, engine, each, loop.create_future()) for each in wanted]
        return [each.limit for each in of._limited(some)]

    assert limits({"2b0", "2b1", "2b2"}) == [2, 2, 2]
    assert limits({"2b0", "2b1", "2b2", "2other"}) == [None, 0, 0]
    assert limits({"2other", "2more"}) == [0, 0, 0]
    loop.close()
