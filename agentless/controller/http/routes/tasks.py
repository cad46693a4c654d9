"""The requests about tasks: submit, look, wait, read, act, take back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse
from pydantic import FiniteFloat

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.framed import framed
from agentless.controller.http.schemas import RecoveryRequest, StopRequest, SubmitRequest
from agentless.controller.http.services import Services, seen_by
from agentless.controller.submit.request import Submit
from agentless.errors import Refused
from agentless.model.tasks.log_query import LogCursor, LogQuery
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.view import (
    RecoveryView,
    ScriptView,
    StartView,
    TaskView,
)
from agentless.rules.tasks.identity import digest


def add_to(app: FastAPI, services: Services) -> None:
    """Add them."""

    @app.get("/v1/tasks")
    async def tasks(
        caller: CurrentCaller,
        ended: bool = False,
        mine: bool = False,
        batch: str | None = None,
        limit: Annotated[int, Query(ge=0, le=1_000_000)] = 1000,
    ) -> list[TaskView]:
        """Live tasks on the nodes, whoever started them; with `ended` also the newest `limit` that have ended."""
        await services.nodes.heard()
        known: dict[str, Task] = {**services.lookup.others(ended=ended), **services.tasks.live}
        if ended:
            known = {task.id: task for task in services.tasks.history.newest(limit)} | known
        if batch is not None:
            found = services.lookup.find(batch)
            known = {
                t.id: t for t in (*services.tasks.history.batch(found.batch), *known.values()) if t.batch == found.batch
            }
            if services.tasks.knows(found.id):  # nobody makes a container one of our batch by a label
                known = {key: task for key, task in known.items() if services.tasks.knows(key)}
        views = [seen_by(caller, services.views.view(task)) for _, task in sorted(known.items())]
        return [view for view in views if view.mine or not mine]

    @app.post("/v1/tasks")
    async def submit(request: SubmitRequest, caller: CurrentCaller) -> list[StartView]:
        asked = Submit(
            request.specs(),
            request.secrets,
            caller,
            request.dry_run,
            request.owner or None,
            request.request,
            request.repeated,
        )
        found = await services.submission.submit(asked)
        return [replace(start, task=seen_by(caller, start.task)) if start.task else start for start in found]

    @app.get("/v1/tasks/{task}")
    async def show(task: str, caller: CurrentCaller) -> TaskView:
        if task not in services.tasks.live:
            await services.nodes.heard()
        return seen_by(caller, services.views.view(services.lookup.find(task)))

    @app.get("/v1/tasks/{task}/spec")
    async def spec(task: str) -> TaskSpec:
        """What was asked for, as the label of its container has it: of secrets the names."""
        return services.lookup.find(task).spec

    @app.get("/v1/tasks/{task}/events")
    async def task_events(task: str) -> list[dict[str, Any]]:
        return [
            {"seq": seq, **orjson.loads(event)}
            for seq, event in services.tasks.history.events(0, -1, services.lookup.find(task).id)
        ]

    @app.get("/v1/tasks/{task}/script")
    async def script(task: str) -> ScriptView:
        """What its launch gives, or gave, to the `sh` of its node; values of secrets are left out."""
        return services.commands.script(task)

    @app.get("/v1/tasks/{task}/wait")
    async def wait(task: str, caller: CurrentCaller, within: FiniteFloat | None = None) -> TaskView:
        return seen_by(caller, services.views.view(await services.commands.wait(task, within)))

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
        """Its output in frames. With `resumable` those of kind 5 say how far it is: as `position` it goes on there."""
        begin = None if position is None else LogCursor.parse(position)
        query = LogQuery(follow, tail, since, timestamps, resumable or begin is not None, begin)
        return framed(services.logs.read(task, query))

    @app.post("/v1/tasks/{task}/stop")
    async def stop(task: str, request: StopRequest, caller: CurrentCaller) -> TaskView:
        return seen_by(caller, services.views.view(await services.stops.stop(task, "stop", request.grace, by=caller)))

    @app.post("/v1/tasks/{task}/kill")
    async def kill(task: str, caller: CurrentCaller) -> TaskView:
        return seen_by(caller, services.views.view(await services.stops.stop(task, "kill", by=caller)))

    @app.post("/v1/tasks/{task}/retry")
    async def retry(task: str, caller: CurrentCaller) -> TaskView:
        """The next try of a task that has ended."""
        return seen_by(caller, services.views.view(services.retries.retry(task, by=caller)))

    @app.post("/v1/tasks/{task}/pause")
    async def pause(task: str, caller: CurrentCaller) -> TaskView:
        return seen_by(caller, services.views.view(await services.commands.pause(task)))

    @app.post("/v1/tasks/{task}/resume")
    async def resume(task: str, caller: CurrentCaller) -> TaskView:
        return seen_by(caller, services.views.view(await services.commands.resume(task)))

    @app.delete("/v1/tasks/{task}")
    async def remove(task: str, caller: CurrentCaller, force: bool = False) -> TaskView:
        return seen_by(caller, await services.removal.remove(task, force=force, by=caller))

    @app.get("/v1/recovery")
    async def recoverable(caller: CurrentCaller) -> RecoveryView:
        """The tasks of this owner that the nodes carry and nobody here remembers, and the nodes that do not tell."""
        await services.envs.look()
        found = services.lookup.unremembered(caller)
        return RecoveryView(
            tuple(seen_by(caller, services.views.view(task)) for task, _ in found.values()),
            services.nodes.silent(),
            {key: task.spec for key, (task, _) in found.items()},
            {key: digest(container) for key, (_, container) in found.items()},
            services.envs.assumed(),
        )

    @app.post("/v1/recovery")
    async def recover(request: RecoveryRequest, caller: CurrentCaller) -> list[TaskView]:
        """Remember these."""
        found = services.lookup.unremembered(caller)
        wanted = [found[key][0] for key in dict.fromkeys(request.tasks) if key in found]
        for task in wanted:
            if request.digests.get(task.id) not in (None, digest(found[task.id][1])):
                raise Refused(f"task {task.id} is not what was shown any more; run agentless recover again")
        for task in wanted:
            services.ledger.adopt(task, f"agentless recover, by {caller}")
        return [seen_by(caller, services.views.view(task)) for task in wanted]
