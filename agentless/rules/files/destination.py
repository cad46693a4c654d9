"""The targets of copies, chosen as by `cp -r` and scp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentless.errors import CopyFailed, UsageError
from agentless.model.files.location import Kind, Location


@dataclass(frozen=True, slots=True)
class Landing:
    """A source and its target path. A file is put there; the content of a folder goes into it."""

    source: Location
    is_folder: bool
    target: str


def landings(sources: Sequence[tuple[Location, Kind]], destination: Location, kind: Kind) -> tuple[Landing, ...]:
    """The target of each source. Sources go below an existing folder; any other destination takes one source only.

    Raises CopyFailed if the destination is missing, unreadable or unsuitable, and UsageError for a senseless request.
    """
    for source, found in sources:
        check_source(source, found)
    if kind == "denied":
        raise CopyFailed(f"{destination}: permission denied")
    if kind == "orphan":
        raise CopyFailed(f"{destination}: the parent folder does not exist; create it first")
    if kind == "folder":
        return _below(sources, destination)
    if len(sources) > 1:
        raise CopyFailed(f"{destination} is not a folder; {len(sources)} sources need one")
    ((source, found),) = sources
    if kind == "other":
        raise CopyFailed(f"{destination} is neither a file nor a folder; choose another name")
    if kind == "file" and found == "folder":
        raise CopyFailed(f"{destination} is a file and {source} is a folder; choose another name")
    if found == "file" and destination.path.endswith("/"):
        raise CopyFailed(f"{destination} is not a folder; create it first, or remove the slash")
    return (Landing(source, found == "folder", destination.path.rstrip("/")),)


def check_source(source: Location, kind: Kind) -> None:
    """Raise CopyFailed if a source of this kind cannot be copied."""
    if kind == "denied":
        raise CopyFailed(f"{source}: permission denied")
    if kind in ("nothing", "orphan"):
        raise CopyFailed(f"{source}: no such file or folder")
    if kind == "other":
        raise CopyFailed(f"{source} is neither a file nor a folder; copy only files and folders")
    if kind == "file" and source.path.endswith("/"):
        raise CopyFailed(f"{source} is a file, not a folder; remove the slash")


def check_target(landing: Landing, target: Location, kind: Kind) -> None:
    """Raise CopyFailed if the target exists and is a folder for a file, or a file for a folder."""
    if kind == "denied":
        raise CopyFailed(f"{target}: permission denied")
    if kind == "folder" and not landing.is_folder:
        raise CopyFailed(f"{target} is a folder; a file cannot replace it")
    if kind in ("file", "other") and landing.is_folder:
        raise CopyFailed(f"{target} exists and is not a folder; choose another name")
    if kind == "other":
        raise CopyFailed(f"{target} is neither a file nor a folder; choose another name")


def _below(sources: Sequence[tuple[Location, Kind]], destination: Location) -> tuple[Landing, ...]:
    found: dict[str, Landing] = {}
    folder = destination.path if destination.path.endswith("/") or not destination.path else f"{destination.path}/"
    for source, kind in sources:
        name = source.path.rstrip("/").rpartition("/")[2]
        if name == "..":
            raise UsageError(f"{source}: specify the folder by its own path, not by '..'")
        # The content of a folder, as in `cp -r folder/. target`. A home or root folder has no name to keep.
        name = "" if name in (".", "~") else name
        if name and name in found:
            raise UsageError(f"{found[name].source} and {source} have the same name; copy them separately")
        found[name or str(source)] = Landing(source, kind == "folder", f"{folder}{name}" if name else destination.path)
    return tuple(found.values())
