"""What a visitor of the dashboard in a browser is shown is what the command would show."""

import sys
from pathlib import Path

from agentless.cli.dashboard import app_command

INVENTORY = Path("/srv/gpu's/inventory.yaml")


def test_the_app_of_a_visitor_has_the_inventory_of_the_command():
    assert app_command(INVENTORY, read_only=False) == [
        *(sys.executable, "-m", "agentless", "--inventory", "/srv/gpu's/inventory.yaml", "dashboard"),
    ]


def test_the_app_of_a_visitor_only_looks_where_the_command_does():
    assert app_command(INVENTORY, read_only=True)[-2:] == ["dashboard", "--read-only"]
