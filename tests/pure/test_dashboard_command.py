"""What a visitor of the dashboard in a browser is shown is what the command would show."""

import sys
from pathlib import Path

import pytest

from agentless.cli.setup.dashboard import app_command


@pytest.mark.parametrize(
    ("inventory", "read_only", "words"),
    [
        (None, False, ["dashboard"]),
        (Path("gpu's.yaml"), False, ["--inventory", "gpu's.yaml", "dashboard"]),
        (None, True, ["dashboard", "--read-only"]),
    ],
)
def test_the_app_of_a_visitor_has_the_options_of_the_command(inventory, read_only, words):
    assert app_command(inventory, read_only) == [sys.executable, "-m", "agentless", *words]
