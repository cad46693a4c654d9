"""`--watch`: a table that is printed again, in place, whenever something in it changes."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from agentless.cli.pager import Page
from agentless.client.client import TRIES, Client
from agentless.errors import ControllerError, UsageError
from agentless.tui.data.cluster import ClusterState


def watch(served: Client, show: Callable[[ClusterState], None]) -> None:
    """Show the cluster at each change until Ctrl-C, also after the controller was restarted.

    The terminal is left as it was.
    """
    _check_terminal()
    with _another_screen():
        failures = 0
        while failures < TRIES:
            failures += 1
            cluster = ClusterState()
            with contextlib.suppress(ControllerError):
                for line in served.lines("/v1/watch"):
                    failures = TRIES if line.get("leaving") else 0
                    cluster.apply(line)
                    _print(partial(show, cluster))
    raise ControllerError(_LOST)


def watch_by(show: Callable[[], None], every: float) -> None:
    """Show something anew every so many seconds, likewise."""
    _check_terminal()
    with _another_screen():
        failures = 0
        while failures < TRIES:
            failures += 1
            with contextlib.suppress(ControllerError):
                _print(show)
                failures = 0
            time.sleep(every)
    raise ControllerError(_LOST)


_LOST = "Lost the connection to the controller. Tasks keep running"


def _check_terminal() -> None:
    if not sys.stdout.isatty():
        raise UsageError("--watch needs a terminal; agentless events --follow writes to a pipe")


def _print(show: Callable[[], None]) -> None:
    page = Page()
    with contextlib.redirect_stdout(page):
        show()
    lines = page.getvalue().splitlines()[: shutil.get_terminal_size().lines - 1]  # more would scroll
    # Overwrite line by line, without clearing first, so that nothing flickers.
    print("\033[H" + "".join(f"{line}\033[K\n" for line in lines) + "\033[J", end="", flush=True)  # noqa: T201


@contextlib.contextmanager
def _another_screen() -> Iterator[None]:
    print("\033[?1049h\033[?25l", end="", flush=True)  # noqa: T201
    try:
        yield
    finally:
        print("\033[?25h\033[?1049l", end="", flush=True)  # noqa: T201
