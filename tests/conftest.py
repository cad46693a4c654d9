"""What all rings share: properties are not timed, since the machine is shared with other tests; times are in UTC.

COLUMNS and LINES, which pytest-xdist sets, would hide the size of the terminals that tests make.
"""

import os
import time

from hypothesis import settings

settings.register_profile("ci", deadline=None)
settings.load_profile("ci")

os.environ["TZ"] = "UTC"
time.tzset()
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
