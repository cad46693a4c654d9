"""The script of `agentless doctor --fix`: what mends a node, to be read and run by a person."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentless.errors import Refused
from agentless.model.text import printable

_REBOOT = re.compile(r"# Reboot the node: (sudo )?reboot")
_SHOWS = re.compile(r"(.*[^ ])(  # shows [^'\"]*)")
"""A command that only shows something. The script goes on when it fails."""
_SUM = "reach"


class Script(NamedTuple):
    """A script that mends a node, and the `place` where it is to be run, in words.

    If it does not `runs`, all that it has is comments.
    """

    node: str
    place: str
    text: str
    runs: bool = True


def script_of(checks: Iterable[dict[str, Any]], *, warnings: bool, inventory: str = "") -> Script | None:
    """A POSIX sh script for one node, for what failed, and for `warnings`; None if there is nothing to mend.

    What is to be run on the other machine is a comment, and so is what has no known fix. A reboot comes last, as a
    comment. `inventory` is the path of the inventory, if it has to be named.
    """
    bad = [check for check in checks if check["ok"] is False or (warnings and check.get("fix"))]
    bad = [check for check in bad if check["check"] != _SUM or len(bad) == 1]
    if not bad:
        return None
    node, here = bad[0]["node"], all(check.get("here") for check in bad)
    body: list[str] = []
    seen: set[str] = set()
    for check in bad:
        body += ["", *_comments(check)]
        body += _commands(check, seen, elsewhere=check.get("here", False) != here)
    if any(_REBOOT.fullmatch(line) for check in bad for line in _fix(check)):
        root = "" if any("# Reboot the node: reboot" in _fix(check) for check in bad) else "sudo "
        body += ["", "# Then reboot the node:", f"# {root}reboot"]
    runs = any(line and not line.startswith("#") for line in body)
    place = "here, where agentless runs" if here else f"on {node}"
    sudo = any("sudo " in line for line in body if not line.startswith("#"))
    who = "" if here else f" as {'a user with sudo' if sudo else 'the user that agentless logs in as'}"
    head = [f"# {printable(node)}: read this, then run it {place}{who}. agentless has run none of it."]
    if not runs:
        head = [f"# {printable(node)}: read this; a person has to decide, so all of it is comments."]
    if inventory and any("inventory" in line for line in body):
        head += [f"# Inventory, where agentless runs: {printable(inventory)}"]
    return Script(node, place + who, "\n".join(("#!/bin/sh", *head, *(["set -e"] if runs else []), *body, "")), runs)


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


def _fix(check: dict[str, Any]) -> list[str]:
    return (check.get("fix") or "").splitlines()


def _comments(check: dict[str, Any]) -> Iterator[str]:
    warning = " (warning)" if check["ok"] else ""
    wrong = check.get("wrong") or check["detail"]
    yield f"# {check['check']}{warning}: {printable(wrong)}"
    if check.get("why"):
        yield f"# {printable(check['why'])}"
    if not check.get("fix"):
        seen = check.get("seen") or ""
        yield "# No command is known that mends this." + (
            f" Seen: {printable(seen)}" if seen not in ("", wrong) else ""
        )


def _commands(check: dict[str, Any], seen: set[str], *, elsewhere: bool) -> Iterator[str]:
    lines = [line for line in map(printable, _fix(check)) if not _REBOOT.fullmatch(line)]
    if elsewhere and lines:
        yield "# Run here, where agentless runs:" if check["here"] else f"# Run on {check['node']}:"
    for line in lines:
        if elsewhere and not line.startswith("#"):
            yield f"# {line}"
        elif line in seen and not line.startswith("#"):
            yield f"# (above) {line}"
        elif shows := _SHOWS.fullmatch(line):
            yield line if line.startswith("#") else f"{shows[1]} || true{shows[2]}"
            seen.add(line)
        else:
            yield line
            seen.add(line)
