"""What all rings share: properties are not timed, since the machine is shared with other tests; times are in UTC."""

import os
import time

from hypothesis import settings

settings.register_profile("ci", deadline=None)
settings.load_profile("ci")

os.environ["TZ"] = "UTC"
time.tzset()
