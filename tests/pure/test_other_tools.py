"""Commands and options of other tools lead to ours."""

from __future__ import annotations

import pytest
import typer

from agentless.cli import other_tools
from agentless.cli.app import COMMANDS, make, run


@pytest.mark.parametrize(
    ("typed", "leads"),
    [
        ("squeue", "did you mean ps or queue?"),
        ("stats", "did you mean top?"),
        ("undrain node1", "did you mean nodes resume?"),
        ("submit 1x -v /a:/b -- true", "did you mean --mount?"),
        ("submit 1x --mem 4G -- true", "did you mean --memory?"),
        ("submit 1x -d -- true", "not needed: submit returns once the task runs or is queued"),
        ("submit 1x -N 4 -- true", "use --nodes N"),
        ("submit 1x --dependency=afterok:7 -- true", "use --after TASK"),
        ("stop -t 3 train", "did you mean --grace?"),
        ("logs -t train", "did you mean --timestamps?"),
        ("ps --format x", "did you mean --output?"),
    ],
)
def test_what_other_tools_call_it_leads_to_ours(typed, leads, capsys):
    assert run(typed.split()) == 2
    assert leads in capsys.readouterr().err


def test_each_lead_is_a_command():
    group = typer.main.get_command(make([]))
    assert not other_tools.COMMANDS.keys() & group.commands.keys()
    for ours in other_tools.COMMANDS.values():
        for words in ours.replace(" or ", ", ").split(", "):
            assert words.split()[0] in COMMANDS, words
