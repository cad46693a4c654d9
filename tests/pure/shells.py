"""The shells that a script is tried in."""

import pytest

SHELLS = [["dash"], pytest.param(["bash"], marks=pytest.mark.slow), ["busybox", "sh"]]
"""bash is left to `make slow`: dash and BusyBox are stricter, and differ from each other."""
