"""The requests about tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Protocol

import orjson
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse
from pydantic import FiniteFloat

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.framed import framed
from agentless.controller.http.schemas import RecoveryRequest, RemovalRequest, StopRequest, SubmitRequest
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.commands import TaskCommands
from agentless.controller.tasks.logs.logs import TaskLogs
from agentless.controller.tasks.recovery import Recovery
from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.retries import Retries
from agentless.controller.tasks.stops import Stops
from agentless.errors import AgentlessError
from agentless.model.caller import Caller
from agentless.model.containers.log_query import LogCursor, LogQuery
from agentless.model.tasks.spec import TaskSpec
from agentless.model.view import RecoveryView, RemovalView, ScriptView, StartView, TaskView
from agentless.rules.views.publish import seen_by


class TaskServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    tasks: Tasks
    lookup: Lookup
    views: TaskViews
    logs: TaskLogs
    submission: Submission
    commands: TaskCommands
    stops: Stops
    retries: Retries
    removal: Removal
    recovery: Recovery


def add_to(app: FastAPI, services: TaskServices) -> None:
    """Add them."""
    _add_reads(app, services)
    _add_following(app, services)
    _add_changes(app, services)
    _add_recovery(app, services)


def _add_reads(app: FastAPI, services: TaskServices) -> None:
    nodes, lookup, views = services.nodes, services.lookup, services.views

    @app.get("/v1/tasks")
    async def tasks(
        caller: CurrentCaller,
        ended: bool = False,
        mine: bool = False,
        batch: str | None = None,
        limit: Annotated[int, Query(ge=0, le=1_000_000)] = 1000,
    ) -> list[TaskView]:
        """List all live tasks, including foreign ones; with `ended`, also the newest `limit` ended ones."""
        await nodes.heard()
        found = [views.seen_by(caller, task) for task in lookup.all(batch, ended=ended, newest=limit)]
        return [view for view in found if view.mine or not mine]

    @app.get("/v1/tasks/{task}")
    async def show(task: str, caller: CurrentCaller) -> TaskView:
        """Show a task."""
        if task not in services.tasks.live:
            await nodes.heard()
        return views.seen_by(caller, lookup.find(task))

    @app.get("/v1/tasks/{task}/spec")
    async def spec(task: str) -> TaskSpec:
        """Show the specification of a task; secrets appear by name only."""
        return lookup.find(task).spec

    @app.get("/v1/tasks/{task}/events")
    async def task_events(task: str) -> list[dict[str, Any]]:
        """List the recorded events of a task, oldest first."""
        events = services.tasks.history.events(0, -1, lookup.find(task).id)
        return [{"seq": seq, **orjson.loads(event)} for seq, event in events]

    @app.get("/v1/tasks/{task}/script")
    async def script(task: str) -> ScriptView:
        """Show the script that launches a task on its node, without the values of secrets."""
        return services.commands.script(task)


def _add_following(app: FastAPI, services: TaskServices) -> None:
    @app.get("/v1/tasks/{task}/wait")
    async def wait(task: str, caller: CurrentCaller, within: FiniteFloat | None = None) -> TaskView:
        """Wait until a task has ended, for at most `within` seconds, and show it."""
        return services.views.seen_by(caller, await services.commands.wait(task, within))

    @app.get("/v1/tasks/{task}/logs")
    async def logs(
        task: str,
        follow: bool = False,
        tail: Annotated[int | None, Query(ge=0, le=1_000_000_000)] = None,
        since: FiniteFloat | None = None,
        timestamps: bool = False,
        resumable: bool = False,
        position: Annotated[str | None, Query(max_length=2000)] = None,
    ) -> StreamingResponse:
        """Stream the output of a task in frames.

        With `resumable`, frames of kind 5 contain a cursor. Pass it as `position` to continue there.
        """
        begin = None if position is None else LogCursor.parse(position)
        query = LogQuery(follow, tail, since, timestamps, resumable or begin is not None, begin)
        return framed(services.logs.read(task, query))


def _add_changes(app: FastAPI, services: TaskServices) -> None:
    views, commands, stops = services.views, services.commands, services.stops

    @app.post("/v1/tasks")
    async def submit(request: SubmitRequest, caller: CurrentCaller) -> list[StartView]:
        """Submit tasks, one per target."""
        found = await services.submission.submit(request.submit(caller))
        return [replace(start, task=seen_by(caller, start.task)) if start.task else start for start in found]

    @app.post("/v1/tasks/remove")
    async def remove_all(request: RemovalRequest, caller: CurrentCaller) -> list[RemovalView]:
        """Remove ended tasks, their containers and logs, each if it can be removed; with `force`, also live ones."""
        terms = {"force": request.force, "part": request.part}
        found = await services.removal.remove_all(request.tasks, **terms, by=caller)
        return [_removal(asked, found[asked], caller) for asked in dict.fromkeys(request.tasks)]

    @app.post("/v1/tasks/{task}/stop")
    async def stop(task: str, request: StopRequest, caller: CurrentCaller) -> TaskView:
        """Stop a task: SIGTERM, then SIGKILL after the grace period."""
        return views.seen_by(caller, await stops.stop(task, "stop", request.grace, by=caller))

    @app.post("/v1/tasks/{task}/kill")
    async def kill(task: str, caller: CurrentCaller) -> TaskView:
        """Kill a task with SIGKILL."""
        return views.seen_by(caller, await stops.stop(task, "kill", by=caller))

    @app.post("/v1/tasks/{task}/retry")
    async def retry(task: str, caller: CurrentCaller) -> TaskView:
        """Retry an ended task."""
        return views.seen_by(caller, services.retries.retry(task, by=caller))

    @app.post("/v1/tasks/{task}/pause")
    async def pause(task: str, caller: CurrentCaller) -> TaskView:
        """Pause a running task."""
        return views.seen_by(caller, await commands.pause(task))

    @app.post("/v1/tasks/{task}/resume")
    async def resume(task: str, caller: CurrentCaller) -> TaskView:
        """Resume a paused task."""
        return views.seen_by(caller, await commands.resume(task))

    @app.delete("/v1/tasks/{task}")
    async def remove(task: str, caller: CurrentCaller, force: bool = False) -> TaskView:
        """Remove an ended task, its container and its log; with `force`, also a live one."""
        return seen_by(caller, await services.removal.remove(task, force=force, by=caller))


def _removal(asked: str, result: TaskView | AgentlessError, caller: Caller) -> RemovalView:
    if isinstance(result, AgentlessError):
        return RemovalView(asked, None, result.exit_code, str(result))
    return RemovalView(asked, seen_by(caller, result), 0, "")


def _add_recovery(app: FastAPI, services: TaskServices) -> None:
    @app.get("/v1/recovery")
    async def recoverable(caller: CurrentCaller) -> RecoveryView:
        """List your tasks that run on nodes and are unknown here, and the nodes that could not be asked."""
        return await services.recovery.offer(caller)

    @app.post("/v1/recovery")
    async def recover(request: RecoveryRequest, caller: CurrentCaller) -> list[TaskView]:
        """Take over tasks that `GET /v1/recovery` has listed."""
        await services.recovery.look()
        found = services.recovery.recover(request.tasks, request.digests, by=caller)
        return [services.views.seen_by(caller, task) for task in found]
