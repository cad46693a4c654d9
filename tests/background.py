"""Programs as `nohup`, cron and `&` in a script start them: told to ignore what a terminal sends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_START = f"""
import os, signal, sys
for number in {tuple(map(int, IGNORED))}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.execvp(sys.argv[1], sys.argv[1:])
"""


def ignoring(argv: Sequence[str]) -> list[str]:
    """The words that start this program so; SIGUSR1 is blocked on top."""
    return [sys.executable, "-c", _START, *argv]
