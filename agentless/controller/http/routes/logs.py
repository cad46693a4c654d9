"""The requests for lines of kept logs. Lines are counted from 0, those of both streams in the order of their ends."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import FastAPI, Query

from agentless.controller.tasks.logs.kept import KeptLogs
from agentless.formats.log_index import LINE, Part
from agentless.model.view import LogFoundView, LogLinesView, LogMatchesView, LogView

LINES = 10_000
"""The most lines of one answer."""

_Line = Annotated[int, Query(ge=0, lt=1 << 53)]
_Stream = Annotated[int | None, Query(ge=1, le=2)]


class LogServices(Protocol):
    """The parts that these requests use."""

    kept_logs: KeptLogs


def add_to(app: FastAPI, services: LogServices) -> None:
    """Add them."""

    @app.get("/v1/tasks/{task}/log")
    async def kept(task: str) -> LogView:
        """Show how long the kept log of an ended task is."""
        return await services.kept_logs.about(task)

    @app.get("/v1/tasks/{task}/log/lines")
    async def lines(
        task: str,
        first: _Line = 0,
        count: Annotated[int, Query(ge=1, le=LINES)] = 1000,
        back: bool = False,
        only: _Stream = None,
        cut: Annotated[int, Query(ge=1, le=LINE)] = LINE,
        limit: Annotated[int, Query(ge=1, le=16 << 20)] = LINE,
    ) -> LogLinesView:
        """Show lines of the kept log of an ended task: `count` from `first` on, or with `back` those before it.

        With `only`, lines of this stream are shown and counted. Of each line, the answer has `cut` bytes. It ends
        before `limit` bytes, but has at least one line.
        """
        return await services.kept_logs.lines(task, Part(first, count, only, back, cut, limit))

    @app.get("/v1/tasks/{task}/log/search")
    async def search(
        task: str,
        text: Annotated[str, Query(min_length=1, max_length=1000)],
        first: _Line = 0,
        back: bool = False,
        only: _Stream = None,
    ) -> LogFoundView:
        """Search the kept log of an ended task, from `first` on or with `back` up to it, in upper or lower case.

        Colors are left out of the text that is searched. An answer without a `line` says where to go on.
        """
        return await services.kept_logs.find(task, text, first, back=back, only=only)

    @app.get("/v1/tasks/{task}/log/matches")
    async def matches(
        task: str,
        text: Annotated[str, Query(min_length=1, max_length=1000)],
        first: _Line = 0,
        only: _Stream = None,
    ) -> LogMatchesView:
        """List all lines of the kept log of an ended task that `search` would find, from `first` on.

        An answer of a long log says where to go on.
        """
        return await services.kept_logs.matches(task, text, first, only=only)
