"""The HTTP API: requests in, published values out. OpenAPI at `/openapi.json`, read by `docs/reference`.

Errors are `{"error": kind, "message": sentence, "exit_code": n}`. A log is a stream of frames: one byte (1 stdout,
2 stderr, 3 a note in words about what is left out, 0 the end: empty, or an error object as JSON), four bytes of length,
big-endian, and that many bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Protocol
from urllib.parse import quote, unquote

import orjson
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import FiniteFloat
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentless import __version__
from agentless.controller.actions import Actions
from agentless.controller.core import Core
from agentless.controller.gate import Gate
from agentless.controller.intake import Intake, Submit
from agentless.controller.requests import (
    DrainRequest,
    MoveRequest,
    RecoveryRequest,
    ReservationRequest,
    ResumeRequest,
    StopRequest,
    SubmitRequest,
    TrustRequest,
)
from agentless.controller.reservations import Reservations
from agentless.controller.scheduler import Scheduler
from agentless.controller.trust import HostKey, Trust
from agentless.errors import AgentlessError, ControllerError, UsageError
from agentless.model.cluster import Gpu
from agentless.model.owner import check_owner
from agentless.model.task import Task
from agentless.model.view import (
    CheckView,
    ControllerView,
    ExplainView,
    GpuView,
    NodeView,
    RecoveryView,
    ReservationView,
    ResumeView,
    ShareView,
    StartView,
    TaskView,
)
from agentless.rules.publish import checks, gpu_view, node_view
from agentless.rules.reservations import notice
from agentless.runtimes.docker import LogQuery

_STATUS = {1: 500, 2: 400, 3: 409, 4: 503}


def _asking(x_agentless_owner: Annotated[str | None, Header()] = None) -> str | None:
    """The owner who asks, None: the controller's own."""
    return check_owner(x_agentless_owner, "$AGENTLESS_OWNER") if x_agentless_owner else None


Asking = Annotated[str | None, Depends(_asking)]


class House(Protocol):
    """What the process around the API provides."""

    core: Core
    intake: Intake
    scheduler: Scheduler
    actions: Actions
    gate: Gate
    reservations: Reservations
    trust: Trust

    def describe(self) -> ControllerView:
        """The controller itself."""

    def leave(self) -> None:
        """End the process, soon."""

    async def use_inventory(self, wanted: str | None, *, reading: bool) -> str | None:
        """Make sure that the inventory in force is the one wanted and current; a warning when it is not."""


def make(house: House) -> FastAPI:
    """The application."""

    async def current(
        request: Request,
        x_agentless_inventory: Annotated[str | None, Header()] = None,
        x_agentless_version: Annotated[str | None, Header()] = None,
    ) -> None:
        if x_agentless_version not in (None, __version__) and not request.url.path.startswith("/v1/controller"):
            raise ControllerError(
                f"the controller that runs is version {__version__} and this command is {x_agentless_version}; "
                "run: agentless controller stop (tasks go on), and try again"
            )
        wanted = unquote(x_agentless_inventory) if x_agentless_inventory else None
        request.state.warning = await house.use_inventory(wanted, reading=request.method == "GET")

    app = FastAPI(
        title="agentless", version=__version__, dependencies=[Depends(current)], docs_url=None, redoc_url=None
    )
    app.add_middleware(_Warnings)
    core = house.core

    @app.exception_handler(AgentlessError)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return _problem(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: Exception) -> JSONResponse:
        first = error.errors()[0]  # type: ignore[attr-defined]
        where = ".".join(map(str, first["loc"]))
        return JSONResponse({"error": "UsageError", "message": f"{where}: {first['msg']}", "exit_code": 2}, 400)

    # ------------------------------------------------------------- controller

    @app.get("/v1/controller")
    async def controller() -> ControllerView:
        return house.describe()

    @app.post("/v1/controller/stop")
    async def stop_controller() -> ControllerView:
        house.leave()
        return house.describe()

    # ------------------------------------------------------------------ tasks

    @app.get("/v1/tasks")
    async def tasks(
        me: Asking,
        ended: bool = False,
        mine: bool = False,
        batch: str | None = None,
        limit: Annotated[int, Query(ge=0, le=1_000_000)] = 1000,
    ) -> list[TaskView]:
        """Live tasks on the nodes, whoever started them; with `ended` also the newest `limit` that have ended."""
        await core.heard(core.links)
        known: dict[str, Task] = {**core.others(ended=ended), **core.tasks}
        if ended:
            known = {task.id: task for task in core.history.newest(limit)} | known
        if batch is not None:
            of = core.find(batch).batch
            known = {t.id: t for t in (*core.history.batch(of), *known.values()) if t.batch == of}
        views = [_to(me, core.view(task)) for _, task in sorted(known.items())]
        return [view for view in views if view.mine or not mine]

    @app.post("/v1/tasks")
    async def submit(request: SubmitRequest, me: Asking) -> list[StartView]:
        asked = Submit(request.specs(), request.secrets, request.dry_run, request.owner or me)
        found = await house.intake.submit(asked)
        return [replace(start, task=_to(me, start.task)) if start.task else start for start in found]

    @app.get("/v1/tasks/{task}")
    async def show(task: str, me: Asking) -> TaskView:
        if task not in core.tasks:
            await core.heard(core.links)
        return _to(me, core.view(core.find(task)))

    @app.get("/v1/queue")
    async def queue(me: Asking) -> list[TaskView]:
        """Those who wait, in their order."""
        await core.heard(core.links)
        return [_to(me, core.view(task)) for task in house.scheduler.queue]

    @app.get("/v1/shares")
    async def shares() -> list[ShareView]:
        """What each owner has used lately, holds and waits for; those first that are next."""
        await core.heard(core.links)
        return house.scheduler.shares()

    @app.post("/v1/tasks/{task}/move")
    async def move(task: str, request: MoveRequest) -> TaskView:
        """Give one that waits another place in the queue."""
        return core.view(house.scheduler.move(task, request.position, request.before, request.after))

    @app.get("/v1/tasks/{task}/explain")
    async def explain(task: str) -> ExplainView:
        """Why a task does not start."""
        await core.heard(core.links)
        return house.scheduler.explain(core.find(task))

    @app.post("/v1/explain")
    async def what_if(request: SubmitRequest, me: Asking) -> ExplainView:
        """What would become of a task if it were submitted now; nothing is."""
        (spec, *more) = request.specs()
        if more:
            raise UsageError("one task at a time can be explained; name one target")
        await core.heard(core.links)
        house.intake.check(spec)
        return house.scheduler.what_if(spec, request.owner or me)

    @app.get("/v1/tasks/{task}/events")
    async def task_events(task: str) -> list[dict[str, Any]]:
        return [{"seq": seq, **orjson.loads(event)} for seq, event in core.history.events(0, -1, core.find(task).id)]

    @app.get("/v1/tasks/{task}/wait")
    async def wait(task: str, me: Asking, within: FiniteFloat | None = None) -> TaskView:
        return _to(me, core.view(await house.actions.wait(task, within)))

    @app.get("/v1/tasks/{task}/logs")
    async def logs(
        task: str,
        follow: bool = False,
        tail: Annotated[int | None, Query(ge=0)] = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> StreamingResponse:
        query = LogQuery(follow, tail, since, timestamps)
        return StreamingResponse(_frames(house.actions.logs(task, query)), media_type="application/octet-stream")

    @app.post("/v1/tasks/{task}/stop")
    async def stop(task: str, request: StopRequest, me: Asking) -> TaskView:
        return _to(me, await house.actions.stop(task, "stop", request.grace))

    @app.post("/v1/tasks/{task}/kill")
    async def kill(task: str, me: Asking) -> TaskView:
        return _to(me, await house.actions.stop(task, "kill"))

    @app.post("/v1/tasks/{task}/retry")
    async def retry(task: str) -> TaskView:
        """The next try of a task that has ended."""
        return house.actions.retry(task)

    @app.post("/v1/tasks/{task}/pause")
    async def pause(task: str, me: Asking) -> TaskView:
        return _to(me, await house.actions.pause(task))

    @app.post("/v1/tasks/{task}/resume")
    async def resume(task: str, me: Asking) -> TaskView:
        return _to(me, await house.actions.resume(task))

    @app.delete("/v1/tasks/{task}")
    async def remove(task: str, me: Asking, force: bool = False) -> TaskView:
        return _to(me, await house.actions.remove(task, force=force))

    @app.get("/v1/recovery")
    async def recoverable(me: Asking) -> RecoveryView:
        """The tasks of this owner that the nodes carry and nobody here remembers, and the nodes that do not tell."""
        await core.heard(core.links)
        return RecoveryView(tuple(_to(me, core.view(task)) for task in core.unremembered(me).values()), core.silent())

    @app.post("/v1/recovery")
    async def recover(request: RecoveryRequest, me: Asking) -> list[TaskView]:
        """Remember these."""
        found = core.unremembered(me)
        wanted = [found[task] for task in request.tasks if task in found]
        for task in wanted:
            core.adopt(task, "agentless recover")
        return [_to(me, core.view(task)) for task in wanted]

    # ------------------------------------------------------------------ nodes

    @app.get("/v1/nodes")
    async def nodes() -> list[NodeView]:
        await core.heard(core.links)
        return [node_view(node) for node in core.cluster().nodes.values()]

    @app.get("/v1/nodes/{node}")
    async def node(node: str) -> NodeView:
        await core.heard([core.link(node).node.name])
        return node_view(core.cluster([core.link(node).node.name]).nodes[node])

    @app.post("/v1/nodes/{node}/drain")
    async def drain(node: str, request: DrainRequest) -> NodeView:
        """From now on nothing new starts there."""
        await core.heard([core.link(node).node.name])
        return node_view(house.gate.drain(node, request.reason))

    @app.post("/v1/nodes/{node}/resume")
    async def resume_node(node: str, request: ResumeRequest) -> ResumeView:
        """Let it in again, or a GPU of it that was found unhealthy."""
        await core.heard([core.link(node).node.name])
        found, lifted = house.gate.resume(node, request.gpu)
        return ResumeView(node_view(found), lifted)

    @app.get("/v1/nodes/{node}/empty")
    async def empty(node: str, within: FiniteFloat = 0.0) -> NodeView:
        """The node when no task lives on it any more or it is not drained, or as it is after `within` seconds."""
        await core.heard([core.link(node).node.name])
        return node_view(await house.gate.empty(node, within))

    @app.get("/v1/gpus")
    async def gpus(node: str | None = None) -> list[GpuView]:
        names = list(core.links) if node is None else [core.link(node).node.name]
        await core.heard(names)
        seen = core.cluster().nodes
        now = core.clock.now()
        return [
            _gpu(core, name, gpu, notice(seen[name], gpu.reading.index, now))
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
        return [check for name in names if name in seen for check in checks(seen[name])]

    @app.get("/v1/nodes/{node}/host-key")
    async def host_key(node: str) -> HostKey:
        return await house.trust.ask(core.link(node))

    @app.post("/v1/nodes/{node}/trust")
    async def trust(node: str, request: TrustRequest) -> HostKey:
        return await house.trust.record(core.link(node), request.fingerprint)

    # ----------------------------------------------------------- reservations

    @app.get("/v1/reservations")
    async def reservations() -> list[ReservationView]:
        """Those that are not over, the first to begin first."""
        await core.heard({each.node for each in core.reservations.values() if each.node in core.links})
        return house.reservations.views()

    @app.post("/v1/reservations")
    async def reserve(request: ReservationRequest) -> list[ReservationView]:
        """All of the targets, or none."""
        return await house.reservations.reserve(request)

    @app.delete("/v1/reservations/{reservation}")
    async def unreserve(reservation: str) -> ReservationView:
        return house.reservations.remove(reservation)

    # ----------------------------------------------------------------- events

    @app.get("/v1/events")
    async def events(
        task: str | None = None,
        last: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        since: float = 0.0,
        after: Annotated[int | None, Query(ge=0)] = None,
        follow: bool = True,
    ) -> StreamingResponse:
        """What has happened, one JSON object per line, and with `follow` what happens from now on.

        It begins after the event number `after`, or with the `last` events that are not older than `since` (Unix
        seconds); `task` leaves out all others.
        """
        only = None if task is None else core.find(task).id
        seq = core.history.last_events(last, since, only) if after is None else after
        return StreamingResponse(_lines(core, seq, only, follow), media_type="application/x-ndjson")

    return app


class _Warnings:
    """The header `x-agentless-warning` on every answer, also on an error and on a stream."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def send_with_warning(message: Message) -> None:
            warning = scope.get("state", {}).get("warning")
            if warning and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-agentless-warning", quote(warning).encode())]
            await send(message)

        await self._app(scope, receive, send_with_warning)


def _gpu(core: Core, node: str, gpu: Gpu, reserved: str | None) -> GpuView:
    idle = core.idle.get(gpu.holder.task) if gpu.holder else None
    return gpu_view(node, gpu, reserved, idle.since.get(gpu.reading.uuid) if idle else None, core.clock.now())


def _to(asking: str | None, view: TaskView) -> TaskView:
    """The view as the one who asks sees it: what is `mine` is theirs."""
    return view if asking is None else replace(view, mine=view.owner == asking)


def _problem(error: Exception) -> JSONResponse:
    code = error.exit_code if isinstance(error, AgentlessError) else 1
    body = {"error": type(error).__name__, "message": str(error), "exit_code": code}
    return JSONResponse(body, _STATUS[code])


async def _lines(core: Core, seq: int, task: str | None, follow: bool) -> AsyncIterator[bytes]:
    with core.hub.listen() as news:
        yield b""
        while True:
            while found := core.history.events(seq, 1000, task):
                seq = found[-1][0]
                yield b"".join(b'{"seq":%d,%b\n' % (number, document[1:]) for number, document in found)
            if not follow:
                return
            await anext(news)


async def _frames(output: AsyncIterator[tuple[int, bytes]]) -> AsyncIterator[bytes]:
    end = b""
    try:
        async for fd, data in output:
            yield bytes([fd]) + len(data).to_bytes(4, "big") + data
    except AgentlessError as error:
        end = orjson.dumps({"error": error.kind, "message": str(error), "exit_code": error.exit_code})
    yield b"\0" + len(end).to_bytes(4, "big") + end
