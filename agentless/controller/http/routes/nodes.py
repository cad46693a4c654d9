"""The requests about nodes and their GPUs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Protocol

from fastapi import FastAPI, Query
from pydantic import FiniteFloat

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import DoctorRequest, DrainRequest, ResumeRequest, TrustRequest
from agentless.controller.nodes.doctor.between import Between
from agentless.controller.nodes.doctor.clusters import ClusterDoctor
from agentless.controller.nodes.doctor.doctor import Doctor
from agentless.controller.nodes.doctor.trials import Trials
from agentless.controller.nodes.health.drain import Drains
from agentless.controller.nodes.host_keys import HostKey, HostKeys
from agentless.controller.nodes.registry import Nodes
from agentless.controller.notify.notifier import Notifier
from agentless.controller.state.views import GpuViews
from agentless.model.view import CheckView, GpuView, ImageView, NodeView, ResumeView
from agentless.rules.views.publish import node_view

_Nodes = Annotated[tuple[str, ...], Query()]
"""Any number of `node=` in a query."""


class NodeServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    exclusions: Drains
    gpu_views: GpuViews
    doctor: Doctor
    cluster_doctor: ClusterDoctor
    trials: Trials
    between: Between
    host_keys: HostKeys
    notifier: Notifier


def add_to(app: FastAPI, services: NodeServices) -> None:
    """Add them."""
    _add_nodes(app, services)
    _add_doctor(app, services)
    _add_gpus(app, services)
    _add_host_keys(app, services)


def _add_nodes(app: FastAPI, services: NodeServices) -> None:
    known, exclusions = services.nodes, services.exclusions

    @app.get("/v1/nodes")
    async def nodes() -> list[NodeView]:
        """List all nodes."""
        await known.heard()
        return [node_view(node) for node in known.cluster().nodes.values()]

    @app.get("/v1/nodes/{node}")
    async def node(node: str) -> NodeView:
        """Show a node."""
        link = known.link(node)
        await known.heard([node])
        engine = link.observation.engine
        return replace(
            node_view(known.cluster([node]).nodes[node]),
            sessions=link.session.sessions,
            cdi_devices=tuple(sorted(engine.cdi)) if engine and not engine.error else None,
            address_in_use=link.session.address,
        )

    @app.get("/v1/nodes/{node}/images")
    async def images(node: str) -> tuple[ImageView, ...]:
        """List the image names of a node, newest first."""
        link = known.link(node)
        await known.heard([node])
        commands = link.runtime.images
        return commands.parse_names(await link.run(commands.names()))

    @app.post("/v1/nodes/{node}/drain")
    async def drain(node: str, request: DrainRequest, caller: CurrentCaller) -> NodeView:
        """Drain a node: no new tasks start there."""
        await known.heard([node])
        return node_view(exclusions.drain(node, request.reason, by=caller))

    @app.post("/v1/nodes/{node}/resume")
    async def resume_node(node: str, request: ResumeRequest, caller: CurrentCaller) -> ResumeView:
        """Resume a drained node or an unhealthy GPU."""
        await known.heard([node])
        found, lifted = exclusions.resume(node, request.gpu, drain_only=request.drain_only, by=caller)
        return ResumeView(node_view(found), lifted)

    @app.get("/v1/nodes/{node}/empty")
    async def empty(node: str, within: FiniteFloat = 0.0) -> NodeView:
        """Wait until a node has no live task or is not drained, for at most `within` seconds, and show it."""
        await known.heard([node])
        return node_view(await exclusions.empty(node, within))


def _add_doctor(app: FastAPI, services: NodeServices) -> None:
    @app.get("/v1/doctor")
    async def doctor(node: _Nodes = ()) -> list[CheckView]:
        """Check nodes and clusters."""
        nodes, clusters = await asyncio.gather(services.doctor.examine(node), services.cluster_doctor.examine(node))
        return [*nodes, *clusters, *services.notifier.checks()]

    @app.post("/v1/doctor/run")
    async def doctor_run(request: DoctorRequest, caller: CurrentCaller) -> list[CheckView]:
        """Start a container on each free GPU of nodes, and check what it sees; and a job on clusters."""
        names = request.nodes
        nodes, clusters = await asyncio.gather(services.trials.run(names, caller), services.cluster_doctor.run(names))
        return [*nodes, *clusters]

    @app.post("/v1/doctor/between")
    async def doctor_between(request: DoctorRequest) -> list[CheckView]:
        """Try whether nodes reach each other, each pair in both directions."""
        return await services.between.run(request.nodes)


def _add_gpus(app: FastAPI, services: NodeServices) -> None:
    @app.get("/v1/gpus")
    async def gpus(caller: CurrentCaller, node: str | None = None) -> list[GpuView]:
        """List the GPUs of one node or of all nodes."""
        names = list(services.nodes.links) if node is None else [node]
        await services.nodes.heard(names)
        seen = services.nodes.cluster().nodes
        return [view for name in names if name in seen for view in services.gpu_views.seen_by(caller, seen[name])]


def _add_host_keys(app: FastAPI, services: NodeServices) -> None:
    nodes, keys = services.nodes, services.host_keys

    @app.get("/v1/host-keys")
    async def host_keys(node: _Nodes = ()) -> list[HostKey]:
        """List the host keys of nodes."""
        return await keys.ask_all(nodes.links_to(node))

    @app.post("/v1/host-keys")
    async def trust_all(fingerprints: dict[str, str]) -> list[HostKey]:
        """Trust the host keys of several nodes, each with the fingerprint that `GET /v1/host-keys` returned."""
        return await keys.record_all({nodes.link(node): shown for node, shown in fingerprints.items()})

    @app.get("/v1/nodes/{node}/host-key")
    async def host_key(node: str) -> HostKey:
        """Show the host key of a node."""
        return await keys.ask(nodes.link(node))

    @app.post("/v1/nodes/{node}/trust")
    async def trust(node: str, request: TrustRequest) -> HostKey:
        """Trust the host key of a node."""
        return await keys.record(nodes.link(node), request.fingerprint)
