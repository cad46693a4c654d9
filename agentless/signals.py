"""The signals that programs begin with which we start."""

from __future__ import annotations

import signal

_OF_TERMINALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python itself ignores them, and `subprocess` gives them back."""


def defaults_for_children() -> None:
    """Let every program that this process starts from now on begin with default signals, none of them blocked.

    What a process ignores (started by `nohup`, by cron, with `&` in a script) all below it ignore, and no shell can
    undo that: a terminal would obey neither Ctrl-C nor a hang-up. What it catches, the kernel sets back for them. So
    what we were told to ignore is caught, and nothing follows: for us all stays as it was. Only stops of terminals are
    set back for us as well, since a read that is stopped and caught is tried again without end.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {*_PYTHONS, signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number in _OF_TERMINALS else _nothing)


def _nothing(_number: int, _frame: object) -> None:
    """Go on."""
