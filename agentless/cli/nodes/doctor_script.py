"""The script of `agentless doctor --fix`: what mends a node, to be read and run by a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentless.model.text import printable

_REBOOT = re.compile(r"(sudo )?reboot(  #.*)?")


def script_of(checks: Iterable[dict[str, Any]]) -> str:
    """A POSIX sh script for one node, empty if there is nothing to mend.

    What is to be run on the other machine is a comment. A reboot comes last, as a comment.
    """
    bad = [check for check in checks if check.get("fix")]
    if not bad:
        return ""
    node, here = bad[0]["node"], all(check["here"] for check in bad)
    place = "here, where agentless runs" if here else f"on {node}"
    lines = ["#!/bin/sh", f"# {printable(node)}: read this, then run it {place}. agentless has run none of it."]
    seen: set[str] = set()
    for check in bad:
        lines += ["", *_comments(check)]
        lines += _commands(check, seen, elsewhere=check["here"] != here)
    if any(_REBOOT.fullmatch(line) for check in bad for line in check["fix"].splitlines()):
        lines += ["", "# Then reboot the node:", "# sudo reboot"]
    return "\n".join((*lines, ""))


def _comments(check: dict[str, Any]) -> Iterator[str]:
    yield f"# {check['check']}: {printable(check['wrong'])}"
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
