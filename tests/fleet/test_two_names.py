"""A machine that the inventory has under two names: its GPUs are there once, and its tasks go on under the first."""

from __future__ import annotations

import asyncio

from tests.fleet.client import until
from tests.fleet.test_owners import ask


def twice(desk):
    """The inventory, with n1 under a second name."""
    text = desk.inventory.read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("n1:"))
    desk.inventory.write_text(text.replace(line, f"{line}\n{line.replace('n1:', 'alias:')}"))


async def test_its_gpus_are_counted_once_and_nodes_gpus_and_doctor_say_so(desk):
    twice(desk)
    async with desk.running() as controller:
        await asyncio.gather(*(link.ready() for link in controller.nodes.links.values()))
        first = controller.homes.known[desk.fleet.nodes["n1"].gpus.uuids[0]]
        (second,) = {"n1", "alias"} - {first}
        _, nodes = await ask(controller, "GET", "/v1/nodes")
        by_name = {node["name"]: node for node in nodes}
        assert (by_name[first]["gpus"], by_name[second]["gpus"]) == (4, 0)
        assert (by_name[second]["state"], f"same machine as {first}" in by_name[second]["reason"]) == ("degraded", True)
        _, gpus = await ask(controller, "GET", "/v1/gpus", node=second)
        assert {gpu["state"] for gpu in gpus} == {"excluded"}
        _, checks = await ask(controller, "GET", "/v1/doctor", node=second)
        assert [check["ok"] for check in checks if check["check"] == "identity"] == [False]


async def test_the_log_of_a_task_is_fetched_once(desk):
    twice(desk)
    async with desk.running() as controller:
        await asyncio.gather(*(link.ready() for link in controller.nodes.links.values()))
        gpu = controller.homes.known[desk.fleet.nodes["n1"].gpus.uuids[0]]
        fetched = []
        keep = controller.retention._fetch

        async def fetch(link, task):
            fetched.append((link.node.name, task.id))
            await keep(link, task)

        controller.retention._fetch = fetch
        task = await desk.ended("echo words", f"{gpu}::0")
        for link in controller.nodes.links.values():
            await link.refresh()
        controller.retention._logs.remove(task)
        controller.retention._idle.clear()
        controller.retention.tick()
        await until(lambda: desk.kept(task) and not controller.retention.busy)
        assert fetched == [(gpu, task)] * 2
        assert (await desk.log(task))[1] == b"words\n"


async def test_a_node_that_names_anothers_gpus_does_not_get_them_when_the_driver_there_fails_once(desk):
    n1, n2 = desk.fleet.nodes["n1"], desk.fleet.nodes["n2"]
    async with desk.running() as controller:
        nodes, own = controller.nodes, list(n1.gpus.uuids)
        n2.gpus.uuids[:] = own
        n2.gpus._write_gpus()
        (n1.gpus._folder / "fault").write_text("exit 9\nFailed to initialize NVML: Driver/library version mismatch\n")
        for node in ("n1", "n2"):
            await nodes.links[node].refresh()
        assert nodes.links["n1"].observation.sample.error
        n1.gpus.heal()
        for node in ("n1", "n2"):
            await nodes.links[node].refresh()
        assert {controller.homes.known[uuid] for uuid in own} == {"n1"}
        assert (nodes.cluster().nodes["n1"].state, nodes.twin("n2") != "") == ("online", True)
