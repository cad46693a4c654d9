"""Writes the files of Slurm into a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from agentless.cli.output import confirm_done
from agentless.errors import Refused
from agentless.rules.slurm.files import WRITTEN, is_customized

_MOST = 1 << 22
"""The most bytes that are read of a file that is there."""
_BEFORE = ".before"
"""The end of the name under which a file is kept that agentless has not written."""


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write what has changed; each file appears as a whole. Raises Refused for what cannot be read or written."""
    path = folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            confirm_done(_write(path, text))
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}") from None


def _write(path: Path, text: str) -> str:
    """Write a file; gives what was done, in words."""
    before = _read(path)
    if before is None:
        _replace(path, text)
        return f"Wrote {path}"
    if is_customized(before):
        return f"Kept {path}: it has the line # USER_CUSTOMIZED=true"
    if before == text:
        return f"Unchanged: {path}"
    kept = ""
    if not before.startswith(WRITTEN):
        other = path.with_name(path.name + _BEFORE)
        if os.path.lexists(other):
            raise Refused(f"{path} is not by agentless, and {other} exists already; move one of them away")
        os.link(path, other)
        kept = f"; the file that was there is {other}"
    _replace(path, text)
    return f"Wrote {path} anew{kept}"


def _read(path: Path) -> str | None:
    """The text of a file, None if there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
    except FileNotFoundError:
        return None
    if len(content) > _MOST:
        raise Refused(f"{path} is larger than {_MOST >> 20} MiB, and is no file of Slurm; use another folder")
    return content.decode(errors="replace")


def _replace(path: Path, text: str) -> None:
    """Put the text in the place of a file, which others see as it was or as it is."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            os.fchmod(number, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            file.write(text)
            file.flush()
            os.fsync(number)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
