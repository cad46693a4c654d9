"""`Cluster`: everything that the command line can do, from Python."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Unpack

from agentless.api.arguments import check_arguments
from agentless.api.batch import Batch
from agentless.api.parse import parse
from agentless.api.shown import clusters_table, gpus_table
from agentless.api.task import Task, future_moment, moment, task
from agentless.api.usage import Usage
from agentless.api.verb import StreamVerb, Verb
from agentless.api.vps import AllVps
from agentless.api.workflow import Workflow, workflow
from agentless.client.client import Client
from agentless.client.files.span_files import read_lines
from agentless.errors import AgentlessError, NotFound, Refused, UsageError, error_named
from agentless.model.owner import owner_of
from agentless.model.tasks.workload import WorkloadName
from agentless.model.usage.figures import By
from agentless.model.view import (
    CheckView,
    ClusterNodeView,
    ClusterView,
    ControllerView,
    EnvView,
    EventView,
    ExplainView,
    GpuView,
    NodeView,
    RecoveryView,
    ReservationView,
    ResumeView,
    ShareView,
)
from agentless.paths import current_dir
from agentless.rules.submit.kinds import texts
from agentless.rules.submit.options import Options, PythonOptions
from agentless.rules.submit.run import in_folder, needs_nothing
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request
from agentless.rules.usage.periods import periods

_log = logging.getLogger("agentless")


class _Client(Client):
    """A client that lives as long as the program."""

    def warned(self, text: str) -> None:
        """Log the warning, unless it is the same as the last one."""
        if self.warnings != [text]:
            self.warnings = [text]
            _log.warning("%s", text)


class Cluster:
    """The nodes of an inventory: `inventory`, else `$AGENTLESS_INVENTORY`, `./inventory.yaml`, the config folder's.

    Each method can also be awaited, as `await cluster.gpus.aio()`. They raise what is in `agentless.errors`. No
    connection is held open between two calls, so there is nothing to close, and threads and event loops may share
    one.

    `vps` are the VPS, by name.
    """

    def __init__(self, inventory: str | os.PathLike[str] | None = None) -> None:
        check_arguments(self.__init__, (inventory,), {})  # type: ignore[misc]
        self._client = _Client.found(None if inventory is None else Path(inventory), owner_of(os.environ))
        self.vps = AllVps(self._client, _asked)

    def __repr__(self) -> str:
        return f"<Cluster {self._client.state_and_inventory[1] or 'without an inventory'}>"

    def _repr_html_(self) -> str | None:
        """GPUs and Slurm clusters as tables for a notebook, if a controller runs: to look at a value starts nothing."""
        try:
            return gpus_table(self.gpus()) + clusters_table(self.clusters()) if self._client.is_running() else None
        except AgentlessError:
            return None

    @Verb
    def submit(self, *command: str, target: str | None = None, **options: Unpack[PythonOptions]) -> Task:
        """Run a command on GPUs: exact ones, or any that match. If they are busy, it is queued.

        Returns the task when it runs or is pending, or when its node did not answer and may have started it
        (its state is `assigning` or `lost`). Raises Refused if the GPUs are not available, and the error of
        whatever else keeps it from starting.
        """
        batch = self._submit(_one(_asked(command, () if target is None else (target,), options)))
        for error in batch.errors:
            raise error
        return batch.tasks[0]

    @Verb
    def run(self, *command: str, target: str | None = None, **options: Unpack[PythonOptions]) -> Task:
        """Run a command with the current folder, and return the task when it has ended and its changes are here.

        The folder is uploaded as it is now, and what the command makes or changes in it is brought back.
        Without a request for resources it gets one GPU, or none if there are none. Otherwise as `submit`.
        """
        targets = () if target is None else (target,)
        if needs_nothing(options, targets):
            options["gpus"] = int(bool(self._client.get("/v1/gpus")))
        batch = self._submit(in_folder(_one(_asked(command, targets, options)), current_dir()))
        for error in batch.errors:
            raise error
        return batch.tasks[0].wait()

    @Verb
    def submit_batch(self, *command: str, targets: Iterable[str] = (), **options: Unpack[PythonOptions]) -> Batch:
        """Run a command on each target; with spans in it (`span:[0.1,0.01]`) once per combination of values.

        Each task starts or fails by itself; a request that is invalid raises.
        """
        return self._submit(_asked(command, targets, options))

    @Verb
    def dry_run(self, *command: str, target: str | None = None, **options: Unpack[PythonOptions]) -> str:
        """The script that a submit would send to `sh` on the node now; raises what a submit would.

        Raises Refused if the task would be queued.
        """
        asked = _one(_asked(command, () if target is None else (target,), options))
        (start,) = self._client.post("/v1/tasks", asked.request(dry_run=True))
        if start["script"] is None:
            raise error_named("", start["message"], start["exit_code"] or Refused.exit_code)
        return str(start["script"])

    @Verb
    def submit_workflow(
        self,
        source: str | os.PathLike[str] | dict[str, Any],
        *,
        params: dict[str, Any] | None = None,
        runtimes: dict[str, str] | None = None,
        node: str | None = None,
    ) -> Workflow:
        """Run the jobs of a file, each when those that it requires have ended: all, or none if one is refused.

        In place of a file, a dict with the same keys; its paths are relative to the current folder. `params` set
        parameters of the file, `runtimes` name envs for its runtimes. All jobs run on `node`, if there
        is one. Raises UsageError with all mistakes and their places, and Refused if a job can never run.
        """
        from agentless.client.files.workflow_file import workflow_of  # noqa: PLC0415 - only for workflows
        from agentless.client.workflows import request_of, uploaded, with_starts  # noqa: PLC0415 - likewise

        asked, text = workflow_of(source, params or {}, runtimes or {}, node)
        for note in asked.notes:
            _log.warning("%s", note)
        asked = uploaded(self._client, asked, lambda words: _log.info("%s", words))
        found = self._client.submit(request_of(asked, text), "/v1/workflows")
        if found["workflow"] is None:
            starts = [(job.title, start) for job, its in with_starts(asked, found["starts"]) for start in its]
            refused = [(job, start) for job, start in starts if start["exit_code"] and start["message"]]
            words = "; ".join(dict.fromkeys(f"{job}: {start['message']}" for job, start in refused))
            raise error_named("", words or "nothing was started", max(start["exit_code"] for _, start in refused))
        return workflow(self._client, self._client.get(f"/v1/workflows/{found['workflow']['id']}"))

    @Verb
    def workflow(self, reference: str) -> Workflow:
        """The workflow of this id, unique beginning of an id, or name, which means the newest; raises NotFound."""
        return workflow(self._client, self._client.get(f"/v1/workflows/{_path_word(reference)}"))

    @Verb
    def workflows(self, *, mine: bool = False) -> list[Workflow]:
        """All workflows, the newest first, without their jobs: `refresh` has them."""
        return [workflow(self._client, each) for each in self._client.get("/v1/workflows", mine=mine)]

    @Verb
    def task(self, reference: str) -> Task:
        """The task of this id, unique beginning of an id, or name; raises NotFound."""
        return task(self._client, self._client.get(f"/v1/tasks/{_path_word(reference)}"))

    @Verb
    def tasks(
        self,
        *,
        all: bool = False,  # noqa: A002 - as the command line has it
        mine: bool = False,
        batch: str | None = None,
        limit: int = 100,
    ) -> list[Task]:
        """The live tasks on the nodes, whoever started them; with `all` also the newest `limit` ended ones.

        `batch`: only those of the batch that this task is in.
        """
        return self._tasks(self._client.get("/v1/tasks", ended=all, mine=mine, batch=batch, limit=limit))

    @Verb
    def queue(self) -> list[Task]:
        """The pending tasks, in the order of the queue."""
        return self._tasks(self._client.get("/v1/queue"))

    @Verb
    def shares(self) -> list[ShareView]:
        """Recent use, running and pending tasks of each owner, in the order of fair share."""
        return [parse(ShareView, each) for each in self._client.get("/v1/shares")]

    @Verb
    def usage(self, since: float | str | datetime | timedelta = "7d", *, by: By = "owner") -> Usage:
        """GPU-hours since then, and how busy the GPUs were, by `owner`, `node` or `batch`."""
        edges = periods(moment(since), time.time())
        return parse(Usage, self._client.get("/v1/usage", edge=edges, by=by))

    @Verb
    def explain(self, target: str | None = None, **options: Unpack[PythonOptions]) -> ExplainView:
        """What would happen to a task with these options if it were submitted now; nothing is submitted."""
        asked = _asked(("true",), () if target is None else (target,), options)
        return parse(ExplainView, self._client.post("/v1/explain", asked.request()))

    @Verb
    def reserve(
        self,
        *targets: str,
        owner: str | None,
        begin: float | str | datetime | timedelta,
        end: float | str | datetime | timedelta,
        reason: str = "",
    ) -> list[ReservationView]:
        """Reserve GPUs or nodes for an owner's tasks, or with `owner` None for maintenance; all targets or none.

        A number is Unix seconds; a timedelta, or a text like `2h`, is from now on.
        """
        now = time.time()
        when = {"begin": future_moment(begin, now), "end": future_moment(end, now)}
        body = {"targets": texts(targets, "targets"), "owner": owner, "reason": reason, **when}
        return [parse(ReservationView, each) for each in self._client.post("/v1/reservations", body)]

    @Verb
    def reservations(self) -> list[ReservationView]:
        """The reservations, active and planned."""
        return [parse(ReservationView, each) for each in self._client.get("/v1/reservations")]

    @Verb
    def unreserve(self, reservation: str) -> ReservationView:
        """Cancel a reservation."""
        return parse(ReservationView, self._client.delete(f"/v1/reservations/{_path_word(reservation)}"))

    @Verb
    def gpus(self, node: str | None = None, *, free: bool = False) -> list[GpuView]:
        """All GPUs, or those of a node; `free`: only those that are free now."""
        found = [parse(GpuView, each) for each in self._client.get("/v1/gpus", node=node)]
        return [gpu for gpu in found if gpu.state == "free" or not free]

    @Verb
    def nodes(self) -> list[NodeView]:
        """The nodes of the inventory."""
        return [parse(NodeView, each) for each in self._client.get("/v1/nodes")]

    @Verb
    def clusters(self) -> list[ClusterView]:
        """The Slurm clusters of the inventory, with their GPUs as of the last look."""
        return [parse(ClusterView, each) for each in self._client.get("/v1/clusters")]

    @Verb
    def cluster_nodes(self, cluster: str) -> list[ClusterNodeView]:
        """The compute nodes of a cluster as it has them now; raises NotFound."""
        found = self._client.get(f"/v1/clusters/{_path_word(cluster)}/nodes")
        return [parse(ClusterNodeView, each) for each in found]

    @Verb
    def node(self, name: str) -> NodeView:
        """One node; raises NotFound."""
        return parse(NodeView, self._client.get(f"/v1/nodes/{_path_word(name)}"))

    @Verb
    def envs(self) -> list[EnvView]:
        """The envs, each with its versions and the nodes that have them."""
        return [parse(EnvView, each) for each in self._client.get("/v1/envs")]

    @Verb
    def drain(self, node: str, *, reason: str | None = None, wait: bool = False) -> NodeView:
        """Start nothing new on a node; running tasks go on. `wait`: until no task of anybody runs there."""
        found = self._client.post(f"/v1/nodes/{_path_word(node)}/drain", {"reason": reason})
        if wait:
            (found,) = deque(self._client.until_empty(node), maxlen=1)
        return parse(NodeView, found)

    @Verb
    def resume(self, node: str, *, gpu: int | None = None, drain_only: bool = False) -> ResumeView:
        """Use a drained node and its unhealthy GPUs again, or only this `gpu`; with `drain_only`, only the node."""
        wanted = {"gpu": gpu, "drain_only": drain_only}
        return parse(ResumeView, self._client.post(f"/v1/nodes/{_path_word(node)}/resume", wanted))

    @Verb
    def doctor(
        self, node: str | Iterable[str] | None = None, *, run: bool = False, between: bool = False
    ) -> list[CheckView]:
        """Checks of all nodes and clusters, or of these, from the name of the host to the toolkit of the engine.

        With `run`, a container is started on each free GPU, which has to see that GPU and no other, and a job on each
        cluster. With `between`, it
        is only tried whether the nodes reach each other.
        """
        nodes = [node] if isinstance(node, str) else list(node or ())
        if between:
            return [parse(CheckView, each) for each in self._client.post("/v1/doctor/between", {"nodes": nodes})]
        found = self._client.get("/v1/doctor", node=node)
        if run:
            found = [*found, *self._client.post("/v1/doctor/run", {"nodes": nodes})]
        return [parse(CheckView, each) for each in found]

    @StreamVerb
    def events(
        self,
        task: str | None = None,
        *,
        follow: bool = False,
        last: int | None = None,
        since: float | str | datetime | timedelta | None = None,
    ) -> Iterator[EventView]:
        """What happened to tasks and nodes, and why; with `follow` also what happens from now on, without an end.

        The `last` ones that are not older than `since`; without either, all of a `task`, or the last 50 of
        everything.
        """
        if last is None:
            last = 50 if since is None and task is None else 1_000_000
        oldest = None if since is None else moment(since)
        for each in self._client.events(follow=follow, task=task, last=last, since=oldest):
            yield parse(EventView, each)

    @Verb
    def recoverable(self) -> RecoveryView:
        """Your tasks that are on the nodes and not in the state, and the nodes that did not list theirs."""
        return parse(RecoveryView, self._client.get("/v1/recovery"))

    @Verb
    def recover(self, tasks: Iterable[str]) -> list[Task]:
        """Take these recoverable tasks back into the state."""
        return self._tasks(self._client.post("/v1/recovery", {"tasks": texts(tasks, "tasks")}))

    @Verb
    def controller(self) -> ControllerView:
        """The background process that does the work."""
        return parse(ControllerView, self._client.get("/v1/controller"))

    def _tasks(self, found: list[Any]) -> list[Task]:
        return [task(self._client, each) for each in found]

    def _submit(self, asked: TaskRequest) -> Batch:
        tasks, errors = [], []
        if asked.spec.uploads:
            from agentless.client.files.snapshot import sent  # noqa: PLC0415 - only for uploads

            asked = sent(self._client, asked, lambda words: _log.info("%s", words))
        for start in self._client.submit(asked.request()):
            found = start["task"] and task(self._client, start["task"])
            if found and (found.ended_at is None or found.container or not start["exit_code"]):
                tasks.append(found)
                for line in start["message"].splitlines():
                    _log.warning("%s", line)
            else:
                errors.append(error_named("", start["message"], start["exit_code"]))
        return Batch(tuple(tasks), tuple(errors))


def _asked(
    command: Iterable[str], targets: Iterable[str], options: Options, workload: WorkloadName | None = None
) -> TaskRequest:
    outside = Outside(time.time(), os.environ, read_lines, current_dir())
    return task_request(command, targets, options, outside, workload)


def _one(asked: TaskRequest) -> TaskRequest:
    if len(asked.sweep) > 1:
        raise UsageError(f"the spans expand to {len(asked.sweep)} tasks; use submit_batch")
    return asked


def _path_word(word: str) -> str:
    """Check a word that becomes a part of a URL path."""
    if not word or "/" in word:
        raise NotFound(f"not found: {word!r}")
    return word
