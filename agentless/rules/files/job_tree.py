"""Uploaded files in the folder of a job on a cluster, which stands for `/workspace` of a container."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from agentless.errors import UsageError
from agentless.model.files.file_spec import Upload
from agentless.model.files.posix_path import within
from agentless.model.files.snapshot import Entry, Snapshot
from agentless.rules.files.container_tree import tree_of
from agentless.rules.files.file_options import WORKDIR

FOLDER = "files"
"""The folder with what was uploaded, in that of the job."""


def place_in_job(workdir: str | None) -> str | None:
    """Where below its uploaded files a job starts; None if its working directory is elsewhere."""
    place = within(WORKDIR, workdir or ".")
    return posixpath.relpath(place, WORKDIR) if _is_inside(place) else None


def check_job_tree(uploads: Iterable[Upload], workdir: str | None) -> None:
    """Raise UsageError for an upload that would leave the folder of the job."""
    for upload in uploads:
        if not _is_inside(within(_top(workdir), upload.target)):
            raise UsageError(
                f"--upload {upload.source}: on a cluster, files go below the folder of the task; use a relative DEST "
                "without .., or copy them there with agentless cp"
            )


def job_tree(uploads: Iterable[tuple[Upload, Snapshot]], workdir: str | None) -> dict[str, Entry]:
    """All uploads in their places, below `FOLDER`."""
    found = tuple(uploads)
    check_job_tree((upload for upload, _ in found), workdir)
    tree = tree_of(found, _top(workdir))
    if tree.get(WORKDIR, Entry("folder", 0)).kind != "folder":
        raise UsageError("a file cannot replace the folder of the task; use another DEST")
    return {FOLDER + path.removeprefix(WORKDIR): entry for path, entry in tree.items()}


def _top(workdir: str | None) -> str:
    """The folder to which uploads are relative."""
    return within(WORKDIR, place_in_job(workdir) or ".")


def _is_inside(path: str) -> bool:
    return path == WORKDIR or path.startswith(f"{WORKDIR}/")
