"""The requests about uploads: what a folder has in it, then the contents that are not here yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fastapi import FastAPI, Request

from agentless.controller.files.contents import take_contents
from agentless.controller.files.uploads import Uploads
from agentless.controller.http.schemas import SnapshotRequest
from agentless.model.files.snapshot import parse_snapshot


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """The id of a snapshot, and the SHA-256 of each file whose content must be uploaded."""

    id: str
    missing: list[str]


class UploadServices(Protocol):
    """The part that these requests use."""

    uploads: Uploads


def add_to(app: FastAPI, services: UploadServices) -> None:
    """Add them."""
    store = services.uploads.store

    @app.post("/v1/snapshots")
    async def snapshot(request: SnapshotRequest) -> SnapshotView:
        """Register the files of a folder for upload."""
        return SnapshotView(*store.put(parse_snapshot(request.files)))

    @app.post("/v1/contents")
    async def contents(request: Request) -> dict[str, int]:
        """Upload the contents of files."""
        return {"taken": await take_contents(store, request.stream())}
