"""What all rings share: properties are not timed, since the machine is shared with other tests; times are in UTC.

A controller that a test starts by the Python API is forked, see `ready`.

COLUMNS and LINES, which pytest-xdist sets, would hide the size of the terminals that tests make.
"""

import gc
import os
import time

from hypothesis import settings

from agentless.client import connection
from tests import ready, templates

settings.register_profile("ci", deadline=None, max_examples=40)
settings.load_profile("ci")
connection._spawn = ready.controller
templates.compile_once()

os.environ["TZ"] = "UTC"
time.tzset()
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)


def pytest_collection_finish() -> None:
    """Spare what was imported and collected from the garbage collection, which took a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
