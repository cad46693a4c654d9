"""All envs: their versions, where these are, and what to type to change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentless.client.words import date
from agentless.model.text import enumerated
from agentless.model.units import format_size
from agentless.tui.data.cluster import Row
from agentless.tui.screens.reports.base import Report
from agentless.tui.widgets.lines import Piece, fitted


class EnvReport(Report):
    """The envs, each with its versions."""

    def fetch(self) -> Any:
        return self.get("/v1/envs")

    def drawn(self, found: Any, width: int) -> Sequence[Sequence[Piece]]:
        if not found:
            return [
                [("No envs. An env is an image that you build on a node and send to the others:", "dim")],
                [("agentless env create NAME --from python:3.12", "")],
            ]
        return [line for env in found for line in _env(env, width)]


def _env(env: Row, width: int) -> Iterator[list[Piece]]:
    state = f"build container on {env['node']}: {env['state']}" if env["node"] else ""
    current = f"version {env['version']}" if env["version"] else "no version yet"
    yield [(env["name"], "strong"), (f"  {current}  ", "held"), (state, "dim")]
    for version in sorted(env["versions"], key=lambda each: each["version"], reverse=True):
        mark = "▸" if version["current"] else " "
        head = f"  {mark} {version['version']:>3}  {format_size(version['size_bytes']):>9}  {date(version['at'])}  "
        where = f"on {enumerated(version['nodes'])}" if version["nodes"] else "on no node that answers"
        message = f"  {version['by']}: {version['message']}" if version["message"] else f"  {version['by']}"
        yield [
            (head, "good" if version["current"] else ""),
            (fitted(where + message, max(0, width - len(head))), "dim"),
        ]
    yield [(f"    agentless env push {env['name']} NODE   agentless env shell {env['name']}", "dim")]
    yield []
