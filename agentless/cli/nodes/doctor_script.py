"""The script of `agentless doctor --fix`: what mends a node, to be read and run by a person."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentless.errors import Refused
from agentless.model.text import printable

_REBOOT = re.compile(r"(sudo )?reboot(  #.*)?")


class Script(NamedTuple):
    """A script that mends a node, and the `place` where it is to be run, in words."""

    node: str
    place: str
    text: str


def script_of(checks: Iterable[dict[str, Any]], *, warnings: bool) -> Script | None:
    """A POSIX sh script for one node, for what failed, and for `warnings`; None if there is nothing to mend.

    What is to be run on the other machine is a comment. A reboot comes last, as a comment.
    """
    bad = [check for check in checks if check.get("fix") and (warnings or check["ok"] is False)]
    if not bad:
        return None
    node, here = bad[0]["node"], all(check["here"] for check in bad)
    place = "here, where agentless runs" if here else f"on {node}"
    lines = ["#!/bin/sh", f"# {printable(node)}: read this, then run it {place}. agentless has run none of it."]
    seen: set[str] = set()
    for check in bad:
        lines += ["", *_comments(check)]
        lines += _commands(check, seen, elsewhere=check["here"] != here)
    if any(_REBOOT.fullmatch(line) for check in bad for line in check["fix"].splitlines()):
        lines += ["", "# Then reboot the node:", "# sudo reboot"]
    return Script(node, place, "\n".join((*lines, "")))


def write(folder: Path, scripts: Sequence[Script]) -> Iterator[tuple[Path, Script]]:
    """Write each script into a file of its own that only you can read and run; raises Refused if one is there."""
    files = {folder / f"{script.node}.sh": script for script in scripts}
    if there := next(filter(os.path.lexists, files), None):
        raise Refused(f"{there} exists already, nothing written; remove it, or use another folder")
    for path, script in files.items():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w", encoding="utf-8") as file:
                file.write("".join(f"{printable(line)}\n" for line in script.text.splitlines()))
        except OSError as error:
            raise Refused(f"cannot write {path}: {error.strerror}") from None
        yield path, script


def _comments(check: dict[str, Any]) -> Iterator[str]:
    warning = " (warning)" if check["ok"] else ""
    yield f"# {check['check']}{warning}: {printable(check['wrong'])}"
    if check["why"]:
        yield f"# {printable(check['why'])}"


def _commands(check: dict[str, Any], seen: set[str], *, elsewhere: bool) -> Iterator[str]:
    if elsewhere:
        yield "# Run here, where agentless runs:" if check["here"] else f"# Run on {check['node']}:"
    for line in map(printable, check["fix"].splitlines()):
        if _REBOOT.fullmatch(line):
            continue
        if elsewhere and not line.startswith("#"):
            yield f"# {line}"
        elif line in seen and not line.startswith("#"):
            yield f"# (above) {line}"
        else:
            yield line
            seen.add(line)
