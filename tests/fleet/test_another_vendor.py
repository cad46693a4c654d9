"""A GPU vendor that a test adds, by one module and one line of wiring, on the simulated node n3; n1 has NVIDIA's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentless.controller import app
from agentless.controller.submit.request import Submit
from agentless.demo.fleet import Fleet, NodePlan
from agentless.errors import Held, UsageError
from agentless.model.containers.claim import GPUS, task_of
from agentless.model.containers.launch import Launch
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.rules.views.publish import node_view
from tests.fleet.acme import PROGRAM, Acme
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_owners import ask

TABLE = "0,ACME-a,65536,12\n1,ACME-b,65536,12\n"


@pytest.fixture
async def fleet(tmp_path):
    async with Fleet(tmp_path / "fleet", [NodePlan("n1", 1), NodePlan("n3", 0)]) as fleet:
        program = fleet.root / "bin" / "acme-smi"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        (fleet.root / "nodes" / "n3" / "acme.csv").write_text(TABLE)
        yield fleet


@pytest.fixture(autouse=True)
def wired(monkeypatch):
    monkeypatch.setattr(app, "VENDORS", (*app.VENDORS, Acme()))


async def submit(controller, target):
    spec = TaskSpec(("sleep", "600"), needs=parse_target(target))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    assert start.task, start.message
    return start.task


async def gpus(controller, node="n3"):
    """What `agentless gpus NODE` shows."""
    _, found = await ask(controller, "GET", "/v1/gpus", node=node)
    return found


def container(desk, node="n3"):
    (only,) = desk.fleet.nodes[node].engine.containers.values()
    return only.config


async def test_a_vendor_that_a_test_adds_is_seen_placed_and_claimed(desk):
    async with desk.running() as controller:
        assert [(gpu["index"], gpu["uuid"], gpu["name"], gpu["state"]) for gpu in await gpus(controller)] == [
            (0, "ACME-a", "Acme One", "free"),
            (1, "ACME-b", "Acme One", "free"),
        ]
        task = await submit(controller, "n3::1")
        await until(lambda: controller.lookup.find(task.id).state == "running")
        assert controller.lookup.find(task.id).status.placement.gpu_uuids == ("ACME-b",)
        assert [(gpu["state"], gpu["task"]) for gpu in await gpus(controller)] == [
            ("free", None),
            ("allocated", task.id),
        ]
        assert container(desk).labels[GPUS] == "ACME-b"
        assert container(desk).env["ACME_VISIBLE_DEVICES"] == "ACME-b"
        assert container(desk).devices == ["/dev/acme/ACME-b"]
        node = controller.nodes.cluster().nodes["n3"]
        assert [check for check in await controller.doctor.examine(["n3"]) if check.ok is False] == []
        assert node_view(node).nvidia_docker is None  # its engine needs no toolkit to hand out these GPUs


async def test_its_variables_are_not_for_tasks_to_set(desk):
    spec = TaskSpec(("true",), image="busybox", env={"ACME_VISIBLE_DEVICES": "ACME-a"})
    async with desk.running() as controller:
        with pytest.raises(UsageError, match="variable ACME_VISIBLE_DEVICES is reserved for agentless"):
            await controller.submission.submit(Submit((spec,), {}, me(controller)))


async def test_its_gpus_are_given_once_by_whomever(desk):
    """The node says no to a second launch, whatever its controller believes."""
    async with desk.running() as controller:
        task = await submit(controller, "n3::0")
        await until(lambda: controller.lookup.find(task.id).state == "running")
        link, placement = controller.nodes.links["n3"], controller.lookup.find(task.id).status.placement
        other = replace(controller.lookup.find(task.id), id="zz9-other")
        result = await link.run(link.runtime.launches([Launch(other, placement)]))
        with pytest.raises(Held, match=f"held by task {task.id}"):
            link.runtime.parse_launch(other, result)


async def test_each_vendors_gpus_are_hidden_from_who_has_those_of_the_other(desk):
    async with desk.running() as controller:
        theirs, ours = await submit(controller, "n1::0"), await submit(controller, "n3::0")
        await until(lambda: {controller.lookup.find(task.id).state for task in (theirs, ours)} == {"running"})
        assert [gpu["name"] for gpu in await gpus(controller, "n1")] == ["Simulated A100"]
        assert container(desk, "n1").env["ACME_VISIBLE_DEVICES"] == "none"
        assert container(desk).env["NVIDIA_VISIBLE_DEVICES"] == "void"


async def test_whose_gpus_a_task_has_is_known_again_from_its_container(desk):
    """Should the state be lost, whatever is launched again gets the devices as before."""
    async with desk.running() as controller:
        task = await submit(controller, "n3::0")
        await until(lambda: controller.nodes.links["n3"].containers)
        known = task_of(controller.nodes.links["n3"].containers[0], "n3", controller.clock.now())
        assert known.id == task.id
        (device,) = known.placement.devices
        assert (device.id, device.kind, device.parent, device.vendor) == ("ACME-a", "gpu", None, "acme")
