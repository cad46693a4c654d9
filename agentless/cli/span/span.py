"""`agentless span`: run a command on this machine once per combination of its spans."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from agentless.cli.command import WithCommand, command_of
from agentless.cli.output import say
from agentless.cli.span.local_runs import GRACE, LocalRun, LocalRuns
from agentless.cli.table import Column, show
from agentless.client.files.span_files import read_lines
from agentless.errors import UsageError
from agentless.model.text import printable
from agentless.model.units import format_duration
from agentless.rules.submit.spans import Combination, expand

_LONGEST_LABEL = 60
_MOST = 256  # each has two pipes, and the usual limit is 1024 open files


def add_to(app: typer.Typer) -> None:
    app.command(cls=WithCommand)(span)


def span(
    context: typer.Context,
    misplaced: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    parallel: Annotated[
        int,
        typer.Option("--parallel", "-j", min=1, max=_MOST, help="Run up to N commands at the same time", metavar="N"),
    ] = 1,
    zipped: Annotated[
        bool, typer.Option("--zip", help="Pair the values of spans by position instead of combining all of them")
    ] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop starting commands once one fails")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands; run nothing")] = False,
) -> int:
    """Run a command on this machine once per combination of values.

    Write the values as spans, and quote them: 'span:[a,b]', 'span:{1..3}' or 'span:[@FILE]'.

    agentless span -j 2 -- python train.py --lr 'span:[0.1,0.01]'
    """
    words = command_of(context)
    if misplaced or not words:
        raise UsageError("Write the command after --, such as: agentless span -- echo 'span:{1..3}'")
    found = expand(words, read_lines, zipped=zipped)
    if not found[0].parameters:
        raise UsageError("No span in the command. Write one, such as 'span:{1..3}' or 'span:[a,b]'")
    if dry_run:
        for combination in found:
            print(shlex.join(combination.argv))  # noqa: T201 - to be run as it is
        return 0
    try:
        return _run(found, parallel, fail_fast=fail_fast)
    except BrokenPipeError:  # the reader has closed the pipe; typer would return 1
        return 128 + signal.SIGPIPE


def _run(found: Sequence[Combination], parallel: int, *, fail_fast: bool) -> int:
    runs = [LocalRun(one.argv, _label(f"{number}/{len(found)}", one.parameters)) for number, one in enumerate(found, 1)]
    sys.stdout.flush()
    ended_by = LocalRuns(runs, _Progress(parallel), at_once=parallel, fail_fast=fail_fast).run()
    rows = [{"run": run, "parameters": one.parameters} for run, one in zip(runs, found, strict=True)]
    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the commands' output
        show([*map(_parameter, found[0].parameters), _CODE, _TIME], rows)
    if ended_by is not None:
        return 128 + ended_by
    return next((run.code for run in runs if run.code), 0)


class _Progress:
    """Prints on stderr what the runs do."""

    def __init__(self, parallel: int) -> None:
        self._in_turn = parallel == 1
        self._done = 0

    def began(self, run: LocalRun) -> None:
        """With one run at a time, a heading keeps the outputs apart."""
        if self._in_turn:
            say(f"--- {run.label}")

    def ended(self, run: LocalRun) -> None:
        """Print failures, and progress on a terminal."""
        self._done += 1
        if run.failure is not None:
            say(f"agentless: {run.label}: cannot run {run.argv[0]}: {run.failure}")
        elif sys.stderr.isatty() and not self._in_turn:
            say(f"--- {run.label}: exit code {_code(run)} ({self._done} done)")

    def ending(self, live: int) -> None:
        say("", f"Stopping {live} running. SIGKILL follows in {format_duration(GRACE)}, or at the next Ctrl-C")


def _label(number: str, parameters: Mapping[str, str]) -> str:
    words = (f"{name}={value}" for name, value in parameters.items())
    text = " ".join(printable(" ".join((number, *words))).split())
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


def _parameter(name: str) -> Column:
    return Column(printable(name), lambda row: str(row["parameters"][name]))


def _code(run: LocalRun) -> str:
    """The exit code, with the name of the signal if one ended it."""
    if run.code is None:
        return "not run"
    with contextlib.suppress(ValueError):
        return f"{run.code} ({signal.Signals(run.code - 128).name})"
    return str(run.code)


def _time(row: dict[str, Any]) -> str:
    run: LocalRun = row["run"]
    return "-" if run.code is None else format_duration(run.seconds)


_CODE = Column("EXIT CODE", lambda row: _code(row["run"]))
_TIME = Column("TIME", _time, right=True)
