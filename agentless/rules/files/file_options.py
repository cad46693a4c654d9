"""Parses `--upload` and `--output`."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from agentless.errors import UsageError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.files.posix_path import within

WORKDIR = "/workspace"
"""The working directory of a task with uploads if neither the task nor its image sets one."""
_KERNEL = ("/dev", "/proc", "/sys")


def parse_upload(text: str) -> Upload:
    """Parse `PATH[:DEST]`. Paths stay relative; see `located`."""
    if (paths := _two_paths(text)) is None:
        raise UsageError(f"--upload {text!r}: use PATH or PATH:DEST; DEST is a path in the container")
    return Upload(*paths)


def parse_output(text: str) -> Output:
    """Parse `PATH[:LOCAL]`. Paths stay relative."""
    if (paths := _two_paths(text)) is None:
        raise UsageError(f"--output {text!r}: use PATH or PATH:LOCAL; LOCAL is a path on this machine")
    if posixpath.normpath(paths[0]) in ("/", "//"):
        raise UsageError(f"--output {text!r}: this is the whole container; specify the files that the task writes")
    return Output(*paths)


def _two_paths(text: str) -> tuple[str, str] | None:
    """`FROM[:TO]` as both paths, the second one empty where it is left out; None for anything else."""
    first, colon, second = text.rpartition(":")
    if not colon:
        first, second = second, ""
    return (first, second) if first and bool(colon) == bool(second) else None


def located(upload: Upload, folder: str) -> Upload:
    """The upload with absolute paths, as seen from the user's current folder.

    The content of the current folder goes into the working folder. Other sources keep their name there.
    """
    source, target = within(folder, upload.source), upload.target
    if not target:
        target = "." if source == within(folder, ".") else posixpath.basename(source)
    elif target.endswith("/"):
        target = posixpath.join(target, posixpath.basename(source))
    if not target:
        raise UsageError(f"--upload {upload.source}: add the path in the container, as PATH:DEST")
    goes = within(WORKDIR, target)
    if any(goes == top or goes.startswith(f"{top}/") for top in _KERNEL):
        raise UsageError(
            f"--upload {upload.source}: {goes} cannot hold files in a container; choose another destination"
        )
    return replace(upload, source=source, target=posixpath.normpath(target))


def brought_to(output: Output, folder: str, *, several: bool) -> Output:
    """The output with its local target. With several tasks, each one gets a folder of its own."""
    path = posixpath.normpath(output.path)
    local = output.local or (posixpath.basename(path) if path != "." else ".")
    into = "/" if local.endswith("/") else ""
    local = within(folder, local)
    if several and "{id}" not in local:
        above, name = posixpath.split(local)
        local = posixpath.join(local, "{id}") if local == within(folder, ".") else posixpath.join(above, "{id}", name)
    return replace(output, path=path, local=local + into)
