"""The requests about uploads: what a folder has in it, then the contents that are not here yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict

from agentless.controller.http.services import Services
from agentless.errors import AgentlessError, UsageError
from agentless.formats.contents import HEAD, parse_content_head
from agentless.model.files.snapshot import parse_snapshot
from agentless.stores.files.snapshots import ContentWriter, SnapshotStore


class SnapshotRequest(BaseModel):
    """What `POST /v1/snapshots` takes: rows of path, kind (`f`, `d`, `l`), mode, size, SHA-256 or where it leads."""

    model_config = ConfigDict(extra="forbid")
    files: list[tuple[str, str, int, int, str]]


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """The id of a snapshot, and the SHA-256 of each content that has to be sent."""

    id: str
    missing: list[str]


def add_to(app: FastAPI, services: Services) -> None:
    """Add them."""
    store = services.uploads.store

    @app.post("/v1/snapshots")
    async def snapshot(request: SnapshotRequest) -> SnapshotView:
        """Take in what a folder has in it."""
        return SnapshotView(*store.put(parse_snapshot(request.files)))

    @app.post("/v1/contents")
    async def contents(request: Request) -> dict[str, int]:
        """Take in contents."""
        return {"taken": await _take(store, request.stream())}


async def _take(store: SnapshotStore, stream: AsyncIterator[bytes]) -> int:
    """How many contents came; raises what is wrong once all of it has been read, so that the answer is heard."""
    taken, problem = 0, None
    buffer, left = b"", 0
    writer: ContentWriter | None = None
    try:
        async for chunk in stream:
            buffer = b"" if problem else buffer + chunk
            while problem is None and (writer or len(buffer) >= HEAD):
                try:
                    if writer is None:
                        digest, left = parse_content_head(buffer[:HEAD])
                        writer, buffer = store.writer(digest), buffer[HEAD:]
                    writer.write(buffer[:left])
                    left, buffer = left - len(buffer[:left]), buffer[left:]
                    if left:
                        break
                    if not writer.finish():
                        raise UsageError("a file changed while it was read; submit it again")
                    taken, writer = taken + 1, None
                except AgentlessError as error:
                    problem = error
    finally:
        if writer:
            writer.close()
    if problem:
        raise problem
    return taken
