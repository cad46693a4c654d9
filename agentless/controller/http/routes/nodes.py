"""The requests about nodes and their GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from fastapi import FastAPI, Query
from pydantic import FiniteFloat

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import DrainRequest, ResumeRequest, TrustRequest
from agentless.controller.http.services import Services
from agentless.controller.nodes.host_keys import HostKey
from agentless.controller.nodes.node_link import NodeLink
from agentless.model.nodes.cluster import Gpu
from agentless.model.view import (
    CheckView,
    GpuView,
    NodeView,
    ResumeView,
)
from agentless.rules.scheduling.reservations import notice
from agentless.rules.views.publish import checks, gpu_view, node_view

_Nodes = Annotated[tuple[str, ...], Query()]
"""Any number of `node=` in a query."""


def add_to(app: FastAPI, services: Services) -> None:
    """Add them."""

    def named(nodes: Iterable[str]) -> list[NodeLink]:
        """The links to these nodes, each once; to all where none is named."""
        return list(dict.fromkeys(services.nodes.link(node) for node in nodes)) or list(services.nodes.links.values())

    @app.get("/v1/nodes")
    async def nodes() -> list[NodeView]:
        await services.nodes.heard()
        return [node_view(node) for node in services.nodes.cluster().nodes.values()]

    @app.get("/v1/nodes/{node}")
    async def node(node: str) -> NodeView:
        link = services.nodes.link(node)
        await services.nodes.heard([link.node.name])
        return replace(node_view(services.nodes.cluster([link.node.name]).nodes[node]), sessions=link.session.sessions)

    @app.post("/v1/nodes/{node}/drain")
    async def drain(node: str, request: DrainRequest, caller: CurrentCaller) -> NodeView:
        """From now on nothing new starts there."""
        await services.nodes.heard([services.nodes.link(node).node.name])
        return node_view(services.exclusions.drain(node, request.reason, by=caller))

    @app.post("/v1/nodes/{node}/resume")
    async def resume_node(node: str, request: ResumeRequest, caller: CurrentCaller) -> ResumeView:
        """Let it in again, or a GPU of it that was found unhealthy."""
        await services.nodes.heard([services.nodes.link(node).node.name])
        found, lifted = services.exclusions.resume(node, request.gpu, by=caller)
        return ResumeView(node_view(found), lifted)

    @app.get("/v1/nodes/{node}/empty")
    async def empty(node: str, within: FiniteFloat = 0.0) -> NodeView:
        """The node when no task lives on it any more or it is not drained, or as it is after `within` seconds."""
        await services.nodes.heard([services.nodes.link(node).node.name])
        return node_view(await services.exclusions.empty(node, within))

    @app.get("/v1/gpus")
    async def gpus(caller: CurrentCaller, node: str | None = None) -> list[GpuView]:
        names = list(services.nodes.links) if node is None else [services.nodes.link(node).node.name]
        await services.nodes.heard(names)
        seen = services.nodes.cluster().nodes
        now = services.clock.now()
        return [
            _gpu(services, name, gpu, caller.name, notice(seen[name], gpu.reading.index, now))
            for name in names
            if name in seen
            for gpu in seen[name].gpus
        ]

    @app.get("/v1/doctor")
    async def doctor(node: _Nodes = ()) -> list[CheckView]:
        links = named(node)
        names = [link.node.name for link in links]
        await asyncio.gather(*(link.ready() for link in links))
        # One that breaks off meanwhile says so by itself.
        await asyncio.gather(*(link.refresh() for link in links if link.online), return_exceptions=True)
        seen = services.nodes.cluster().nodes
        found = [check for name in names if name in seen for check in checks(seen[name], services.nodes.twin(name))]
        trouble = services.ledger.examine_stores()
        return [*found, CheckView("controller", "state", False, trouble)] if trouble else found

    @app.get("/v1/host-keys")
    async def host_keys(node: _Nodes = ()) -> list[HostKey]:
        return await services.host_keys.ask_all(named(node))

    @app.post("/v1/host-keys")
    async def trust_all(fingerprints: dict[str, str]) -> list[HostKey]:
        """Record the keys of several nodes, each by its fingerprint, as `GET /v1/host-keys` showed it."""
        return await services.host_keys.record_all(
            {services.nodes.link(node): shown for node, shown in fingerprints.items()}
        )

    @app.get("/v1/nodes/{node}/host-key")
    async def host_key(node: str) -> HostKey:
        return await services.host_keys.ask(services.nodes.link(node))

    @app.post("/v1/nodes/{node}/trust")
    async def trust(node: str, request: TrustRequest) -> HostKey:
        return await services.host_keys.record(services.nodes.link(node), request.fingerprint)


def _gpu(services: Services, node: str, gpu: Gpu, asking: str, reserved: str | None) -> GpuView:
    idle = services.tasks.idle.get(gpu.holder.task) if gpu.holder else None
    since = idle.since.get(gpu.reading.uuid) if idle else None
    return gpu_view(node, gpu, reserved, since, services.clock.now(), asking)
