"""A command that tests fork is the command that a person starts: same answer, same end."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests import ready


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "HOME": str(tmp_path), "AGENTLESS_INVENTORY": str(tmp_path / "nowhere.yaml")}


@pytest.mark.parametrize("words", [("--version",), ("submit", "--help"), ("sbumit",), ("inventory", "check")])
def test_it_answers_and_ends_as_the_program_does(environment, tmp_path, words):
    own = subprocess.run(
        ["agentless", *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    forked = ready.agentless(*words, env=environment, cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (own.returncode, own.stdout, own.stderr)


def test_what_goes_wrong_inside_shows_its_traceback(environment):
    done = ready.agentless("--version", env=environment, cwd="/nowhere")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
