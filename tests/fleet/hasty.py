"""The controller as it is, with less patience; `ready.hasty` starts it.

What it does after a minute of silence, it does here after some seconds: thousands of steps cannot wait. How often it
looks at everything is in the environment, see LOOKS, and how long such a look may take, see LOOK_WITHIN. It ends when
its standard input does, so that it cannot outlive the one who started it.
"""

from __future__ import annotations

import os
import sys
import threading

from agentless.controller import periodic
from agentless.controller.__main__ import main
from agentless.controller.nodes import reconciler
from agentless.controller.nodes.link import connection, inspector, sampler, watcher
from agentless.controller.tasks import stops
from agentless.controller.tasks.launch import launcher
from agentless.rules.nodes.backoff import backoff
from agentless.rules.tasks import reconcile, retention

LOOKS = "SECONDS_BETWEEN_LOOKS"
LOOK_WITHIN = "SECONDS_FOR_A_LOOK"


def _hasten() -> None:
    """In a process of its own only."""
    reconciler.LOST_AFTER = 2.0
    launcher.OUTCOME_WITHIN = 2.0
    reconcile.LAUNCH_BOUND = launcher.LAUNCH_BOUND = stops.LAUNCH_BOUND = 3.0
    reconcile.REAP_AFTER = retention.REAP_AFTER = 4.0
    watcher.REFRESH_EVERY = float(os.environ[LOOKS])
    within = float(os.environ.get(LOOK_WITHIN, inspector.REFRESH_WITHIN))
    inspector.REFRESH_WITHIN = sampler.SAMPLE_WITHIN = within
    connection.backoff = lambda attempt, random: min(1.0, backoff(attempt, random))
    periodic.EVERY = 0.5


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(1)


def run() -> int:
    """Be it, in a process of its own."""
    _hasten()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    return main()
