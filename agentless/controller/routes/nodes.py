"""The requests about nodes and their GPUs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fastapi import FastAPI
from pydantic import FiniteFloat

from agentless.controller.core import Core
from agentless.controller.house import Asking, House
from agentless.controller.requests import (
    DrainRequest,
    ResumeRequest,
    TrustRequest,
)
from agentless.controller.trust import HostKey
from agentless.model.cluster import Gpu
from agentless.model.view import (
    CheckView,
    GpuView,
    NodeView,
    ResumeView,
)
from agentless.rules.publish import checks, gpu_view, node_view
from agentless.rules.reservations import notice


def add_to(app: FastAPI, house: House) -> None:
    """Add them."""
    core = house.core

    @app.get("/v1/nodes")
    async def nodes() -> list[NodeView]:
        await core.heard(core.links)
        return [node_view(node) for node in core.cluster().nodes.values()]

    @app.get("/v1/nodes/{node}")
    async def node(node: str) -> NodeView:
        link = core.link(node)
        await core.heard([link.node.name])
        return replace(node_view(core.cluster([link.node.name]).nodes[node]), sessions=link.session.sessions)

    @app.post("/v1/nodes/{node}/drain")
    async def drain(node: str, request: DrainRequest, me: Asking) -> NodeView:
        """From now on nothing new starts there."""
        await core.heard([core.link(node).node.name])
        return node_view(house.gate.drain(node, request.reason, me))

    @app.post("/v1/nodes/{node}/resume")
    async def resume_node(node: str, request: ResumeRequest, me: Asking) -> ResumeView:
        """Let it in again, or a GPU of it that was found unhealthy."""
        await core.heard([core.link(node).node.name])
        found, lifted = house.gate.resume(node, request.gpu, me)
        return ResumeView(node_view(found), lifted)

    @app.get("/v1/nodes/{node}/empty")
    async def empty(node: str, within: FiniteFloat = 0.0) -> NodeView:
        """The node when no task lives on it any more or it is not drained, or as it is after `within` seconds."""
        await core.heard([core.link(node).node.name])
        return node_view(await house.gate.empty(node, within))

    @app.get("/v1/gpus")
    async def gpus(me: Asking, node: str | None = None) -> list[GpuView]:
        names = list(core.links) if node is None else [core.link(node).node.name]
        await core.heard(names)
        seen = core.cluster().nodes
        now = core.clock.now()
        return [
            _gpu(core, name, gpu, me or core.owner, notice(seen[name], gpu.reading.index, now))
            for name in names
            if name in seen
            for gpu in seen[name].gpus
        ]

    @app.get("/v1/doctor")
    async def doctor(node: str | None = None) -> list[CheckView]:
        names = list(core.links) if node is None else [core.link(node).node.name]
        links = [core.links[name] for name in names]
        await asyncio.gather(*(link.ready() for link in links))
        # One that breaks off meanwhile says so by itself.
        await asyncio.gather(*(link.refresh() for link in links if link.online), return_exceptions=True)
        seen = core.cluster().nodes
        return [check for name in names if name in seen for check in checks(seen[name], core.twin(name))]

    @app.get("/v1/nodes/{node}/host-key")
    async def host_key(node: str) -> HostKey:
        return await house.trust.ask(core.link(node))

    @app.post("/v1/nodes/{node}/trust")
    async def trust(node: str, request: TrustRequest) -> HostKey:
        return await house.trust.record(core.link(node), request.fingerprint)


def _gpu(core: Core, node: str, gpu: Gpu, asking: str, reserved: str | None) -> GpuView:
    idle = core.idle.get(gpu.holder.task) if gpu.holder else None
    since = idle.since.get(gpu.reading.uuid) if idle else None
    return gpu_view(node, gpu, reserved, since, core.clock.now(), asking)
