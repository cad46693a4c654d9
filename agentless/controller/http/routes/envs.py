"""The requests about envs. What may take long is answered by lines, see `progress`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Response

from agentless.controller.envs.builds import Builds, Wish
from agentless.controller.envs.envs import Envs
from agentless.controller.envs.moves import Moves
from agentless.controller.envs.prune import Prune
from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.framed import framed
from agentless.controller.http.progress import ProgressResponse
from agentless.controller.http.schemas import (
    CreateEnvRequest,
    PruneEnvsRequest,
    PushEnvRequest,
    RollbackEnvRequest,
    SaveEnvRequest,
)
from agentless.controller.http.terminal_stream import TerminalStream
from agentless.controller.lifetime import Lifetime
from agentless.model.images.env import check_name, parse_ref
from agentless.model.terminal import Attachment, Size
from agentless.model.view import EnvView


class EnvServices(Protocol):
    """The parts that these requests use."""

    envs: Envs
    builds: Builds
    moves: Moves
    prune: Prune
    lifetime: Lifetime


def add_to(app: FastAPI, services: EnvServices) -> None:
    """Add them."""
    _add_envs(app, services)
    _add_builds(app, services)
    _add_moves(app, services.moves)


def _add_envs(app: FastAPI, services: EnvServices) -> None:
    envs = services.envs

    @app.get("/v1/envs")
    async def listed() -> list[EnvView]:
        """List all envs."""
        await envs.look()
        return envs.views()

    @app.get("/v1/envs/{env}")
    async def shown(env: str) -> EnvView:
        """Show an env and its versions."""
        await envs.look()
        return envs.view(env)

    @app.post("/v1/env/prune")
    async def prune(request: PruneEnvsRequest, caller: CurrentCaller) -> dict[str, Any]:
        """Remove unused versions before the current one, and leftovers of interrupted operations."""
        return await services.prune.prune(caller, dry_run=request.dry_run)

    @app.delete("/v1/envs/{env}")
    async def remove(env: str, caller: CurrentCaller) -> dict[str, Any]:
        """Remove an env, or one version (`NAME:N`), from all reachable nodes."""
        return await asyncio.shield(services.prune.remove(parse_ref(env), caller, lambda _: None))

    @app.delete("/v1/envs/{env}/build-container")
    async def remove_container(env: str, caller: CurrentCaller) -> dict[str, Any]:
        """Remove the build container of an env; its versions stay."""
        return await asyncio.shield(services.prune.remove_container(check_name(env), caller))


def _add_builds(app: FastAPI, services: EnvServices) -> None:
    builds = services.builds

    @app.post("/v1/envs/{env}")
    async def create(env: str, request: CreateEnvRequest, caller: CurrentCaller) -> Response:
        """Create an env, with a build container made from an image."""
        return ProgressResponse(lambda tell, _: builds.create(env, request.image, request.node, caller, tell))

    @app.post("/v1/envs/{env}/build")
    async def build(
        env: str,
        caller: CurrentCaller,
        dockerfile: str = "Dockerfile",
        base: Annotated[tuple[str, ...], Query()] = (),
        node: str | None = None,
        message: str = "",
    ) -> Response:
        """Build a new version from a Dockerfile. The body is the build context, a tar archive."""
        wish = Wish(dockerfile, base, node, message)
        return ProgressResponse(lambda tell, body: builds.build(env, wish, caller, body, tell), upload=True)

    @app.post("/v1/envs/{env}/terminal")
    async def terminal(
        env: str, caller: CurrentCaller, command: Annotated[tuple[str, ...], Query()] = (), size: str | None = None
    ) -> Response:
        """Run a program in the build container of an env. Without `size`, it has no terminal."""
        opening = builds.open(env, command, Attachment.sized(None if size is None else Size.parse(size)), caller)
        stopped = "the controller stopped and closed the terminal; the env keeps its changes"
        return TerminalStream(services.lifetime, opening, stopped)

    @app.post("/v1/envs/{env}/start")
    async def start(env: str, caller: CurrentCaller) -> dict[str, Any]:
        """Start the build container. Of an env that has none, it is made of the current version."""
        return await asyncio.shield(builds.start(check_name(env), caller))

    @app.post("/v1/envs/{env}/stop")
    async def stop(env: str, caller: CurrentCaller) -> dict[str, Any]:
        """Stop the build container, with the programs in it."""
        return await asyncio.shield(builds.stop(check_name(env), caller))

    @app.post("/v1/envs/{env}/save")
    async def save(env: str, request: SaveEnvRequest, caller: CurrentCaller) -> Response:
        """Save the build container as a new version."""
        return ProgressResponse(lambda tell, _: builds.save(env, request.message, caller, tell))

    @app.post("/v1/envs/{env}/rollback")
    async def rollback(env: str, request: RollbackEnvRequest, caller: CurrentCaller) -> Response:
        """Make an earlier version the current one."""
        ref = parse_ref(env)
        return ProgressResponse(lambda tell, _: builds.rollback(ref, caller, tell, force=request.force))


def _add_moves(app: FastAPI, moves: Moves) -> None:
    @app.post("/v1/env/import")
    async def take_in(caller: CurrentCaller, env: str | None = None, node: str | None = None) -> Response:
        """Import a version. The body is an archive of `docker save` with one image and no names."""
        return ProgressResponse(lambda tell, body: moves.take_in(env, node, caller, body, tell), upload=True)

    @app.post("/v1/envs/{env}/push")
    async def push(env: str, request: PushEnvRequest, caller: CurrentCaller) -> Response:
        """Copy a version to nodes."""
        ref = parse_ref(env)
        return ProgressResponse(lambda tell, _: moves.push(ref, request.nodes, request.via, caller, tell))

    @app.get("/v1/envs/{env}/export")
    async def export(env: str) -> Response:
        """Export a version as an archive, in frames like a log."""
        ref, archive = await moves.export(parse_ref(env))
        return framed(archive, {"x-agentless-env": str(ref)})
