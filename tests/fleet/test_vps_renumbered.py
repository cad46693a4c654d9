"""A VPS that is started again after the GPUs of its node were renumbered."""

from __future__ import annotations

import pytest

from agentless import Refused
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_slices import submit
from tests.fleet.test_vps_expires import create


async def renumber(desk, controller, *uuids):
    """Let n1 have these GPUs in this order, and wait until the controller has seen it."""
    gpus = desk.fleet.nodes["n1"].gpus
    gpus.uuids[:] = uuids
    gpus._write_gpus()
    link = controller.nodes.links["n1"]
    await until(lambda: [gpu.uuid for gpu in link.observation.sample.gpus] == list(uuids))


async def test_it_starts_on_its_own_gpu_whichever_number_that_has_now_and_on_no_other(desk):
    async with desk.running() as controller:
        await create(controller)
        await controller.vps.stop("box", 0.0, by=me(controller))
        own, *others = desk.fleet.nodes["n1"].gpus.uuids
        await renumber(desk, controller, *others, own)
        assert (await submit(controller, "n1::0", wait_for=0.0)).task.gpu_uuids == (others[0],)
        assert (await controller.vps.start("box", by=me(controller))).task.placement.gpu_uuids == (own,)
        await controller.vps.stop("box", 0.0, by=me(controller))
        await renumber(desk, controller, *others, "GPU-00000000-0000-0000-0000-000000000000")
        with pytest.raises(Refused, match=f"VPS box had GPU {own}, which n1 does not list any more"):
            await controller.vps.start("box", by=me(controller))
