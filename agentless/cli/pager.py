"""A pager for output that is longer than the screen, as git has it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

from agentless.cli.table import width

VARIABLE = "AGENTLESS_PAGER"
NONE = ("", "cat")
"""Values of VARIABLE and PAGER that mean no pager."""
_STYLE = re.compile(r"\033\[[0-9;]*m")


class Page(io.StringIO):
    """Collects output as if it were the terminal."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """Show what is printed in this block in a pager if it is longer than the screen. Has no effect in a pipe."""
    command = _command()
    if not command or isinstance(sys.stdout, Page) or not sys.stdout.isatty():
        yield
        return
    page = Page()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(page))
            if sys.stderr.isatty():  # notes stay next to what they are about
                stack.enter_context(contextlib.redirect_stderr(page))
            yield
    finally:
        text = page.getvalue()
        if not _is_long(text) or not _shown(command, text):
            print(text, end="")  # noqa: T201


def _command() -> list[str]:
    """The pager: $AGENTLESS_PAGER, else $PAGER, else less. Empty if there is to be none."""
    wanted = os.environ.get(VARIABLE, os.environ.get("PAGER", "less"))
    if wanted.strip() in NONE or os.environ.get("TERM", "dumb") == "dumb":
        return []
    with contextlib.suppress(ValueError):  # an open quote
        return shlex.split(wanted)
    return []


def _is_long(text: str) -> bool:
    screen = shutil.get_terminal_size()
    rows = sum(max(1, -(-width(_STYLE.sub("", line)) // screen.columns)) for line in text.splitlines())
    return rows >= screen.lines


def _shown(command: list[str], text: str) -> bool:
    """Run the pager until the user leaves it; False if it cannot be started."""
    environment = {"LESS": "FRX", "LESSCHARSET": "utf-8", "LV": "-c", **os.environ}
    sys.stdout.flush()
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        pager.communicate(text.encode("utf-8", "backslashreplace"))
    finally:
        signal.signal(signal.SIGINT, before)
    return True
