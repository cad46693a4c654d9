"""A VPS, a container that stays, and all of them."""

from __future__ import annotations

import builtins
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Unpack

from agentless.api.parse import parse
from agentless.api.task import Task
from agentless.api.verb import Verb
from agentless.client.client import Client
from agentless.errors import NotFound, UsageError, error_named
from agentless.model.images.snapshot import parse_snapshot
from agentless.model.view import SnapshotView
from agentless.rules.submit.kinds import parse_seconds
from agentless.rules.submit.options import OPTIONS, Options
from agentless.rules.submit.task_request import TaskRequest

_log = logging.getLogger("agentless")


@dataclass(frozen=True, slots=True)
class Vps(Task):
    """A VPS: a task whose container stays.

    It has all fields and methods of a task. They mean the VPS of this `name` as it is then, also when another container
    has taken the place of this one.
    """

    __hash__ = Task.__hash__

    @Verb
    def refresh(self) -> Vps:
        """The VPS as it is now."""
        return vps(self._client, self._client.get(self._named()))

    @Verb
    def start(self, *, anywhere: bool = False) -> Vps:
        """Start it again with the same GPUs. Raises Refused if somebody has them, and says who.

        `anywhere`: if they are taken or its node is away, start it with others, in a new container from a snapshot.
        """
        return _started(self._client, self._client.post(self._named("/start"), {"anywhere": anywhere}))

    @Verb
    def stop(self, grace: float | str | timedelta | None = None) -> Vps:
        """Stop it: SIGTERM, the grace time, then SIGKILL. Its GPUs are free, and its files stay."""
        return vps(self._client, self._client.post(self._named("/stop"), _grace(grace)))

    @Verb
    def restart(self, grace: float | str | timedelta | None = None) -> Vps:
        """Stop it if it runs, and start it."""
        return _started(self._client, self._client.post(self._named("/restart"), _grace(grace)))

    @Verb
    def snapshot(self, message: str = "") -> SnapshotView:
        """Save its files as a snapshot, without mounted folders and volumes; if it runs, it is paused for a moment."""
        return parse(SnapshotView, self._client.post(self._named("/snapshots"), {"message": message}))

    @Verb
    def snapshots(self) -> list[SnapshotView]:
        """Its snapshots, oldest first, and the nodes that have them."""
        return [parse(SnapshotView, each) for each in self._client.get(self._named("/snapshots"))]

    @Verb
    def restore(self, snapshot: int | str) -> Vps:
        """Go back to a snapshot, such as 2 or "dev:2": a new container from it, on the same GPUs.

        All that was changed in its files since is lost.
        """
        return _started(self._client, self._client.post(self._named("/restore"), {"snapshot": str(snapshot)}))

    @Verb
    def resize(self, target: str | None = None, *, cores: float | None = None, memory: int | str | None = None) -> Vps:
        """Give it other cores, memory or GPUs, such as "2x". What is None stays as it is; 0 is no limit.

        Cores and memory change while it runs. For other GPUs, or to lift a limit, it is stopped and started in a new
        container with the same files. Memory is a text such as "16GiB", or a number of megabytes.
        """
        size = None if memory is None else OPTIONS["memory"].read(memory)
        body = {"cores": cores, "memory": size, "target": target}
        return _started(self._client, self._client.post(self._named("/resize"), body))

    @Verb
    def remove(self, *, force: bool = False) -> Vps:
        """Remove it with its files; returns it for the last time. `force`: also if it runs. Its snapshots stay."""
        return vps(self._client, self._client.delete(self._named(), force=force))

    @property
    def _reference(self) -> str:
        """Its name, in the place of an id."""
        return self.name or ""

    def _named(self, rest: str = "") -> str:
        return f"/v1/vps/{self.name}{rest}"


class AllVps:
    """The VPS of a cluster, by name: `cluster.vps`."""

    def __init__(self, client: Client, read: Callable[..., TaskRequest]) -> None:
        self._client, self._read = client, read

    @Verb
    def create(
        self,
        name: str,
        /,
        *command: str,
        target: str | None = None,
        snapshot: str | None = None,
        **options: Unpack[Options],
    ) -> Vps:
        """Create a container that stays, and start it. Without a command it waits for you to log in.

        `snapshot`: begin with this snapshot of a VPS, such as "dev:2". The options are those of a submit but those that
        need an end. Returns the VPS when it runs or is pending. Raises Refused if the name is taken, and the error of
        whatever else keeps it from starting.
        """
        options["name"] = name
        if snapshot is not None:
            if options.get("image") or options.get("container"):
                raise UsageError("snapshot cannot be combined with image or container; use one of them")
            options["container"] = str(parse_snapshot(snapshot))
        asked = self._read(command, () if target is None else (target,), options, "vps")
        start = self._client.post("/v1/vps", {**asked.request(), "request": os.urandom(8).hex()})
        if start["exit_code"]:
            raise error_named("", start["message"], start["exit_code"])
        return vps(self._client, start["task"])

    @Verb
    def get(self, name: str) -> Vps:
        """The VPS of this name; raises NotFound."""
        return vps(self._client, self._client.get(_path(name)))

    @Verb
    def snapshots(self, name: str) -> builtins.list[SnapshotView]:
        """The snapshots of a VPS, oldest first; also of one that was removed."""
        return [parse(SnapshotView, each) for each in self._client.get(f"{_path(name)}/snapshots")]

    @Verb
    def list(self) -> builtins.list[Vps]:
        """All of them, by name, including stopped ones."""
        return [vps(self._client, each) for each in self._client.get("/v1/vps")]


def vps(client: Client, found: Any) -> Vps:
    """The VPS that is `found` as JSON."""
    return parse(Vps, found, _client=client)


def _started(client: Client, found: Any) -> Vps:
    """The VPS that was started. What is left of an earlier container goes to Python's log."""
    if found["message"]:
        _log.warning("%s", found["message"])
    return vps(client, found["task"])


def _path(name: str) -> str:
    if not name or "/" in name:
        raise NotFound(f"no VPS {name!r}")
    return f"/v1/vps/{name}"


def _grace(grace: float | str | timedelta | None) -> dict[str, float | None]:
    return {"grace": None if grace is None else parse_seconds(grace, "grace")}
