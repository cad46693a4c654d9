"""The dashboard in terminals of several kinds, 80 columns wide and 24 lines high."""

from __future__ import annotations

import re
import shutil
import sys

import pytest

from tests.fleet import web_dashboard
from tests.tmux import Tmux

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")
MANY_COLOURS = re.compile(r"[\x1b;]\[?[34]8;[25];")
KINDS = ("linux", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("xterm", "xterm-256color", "screen")))


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_draws_takes_keys_and_leaves_the_terminal_as_it_was(kind, tmp_path):
    script = web_dashboard.__file__  # as a module of the tests it would be told of another terminal
    with Tmux(tmp_path, {"AGENTLESS_PLACE": ""}, 80, 24) as tmux:
        tmux.run("env", "-u", "COLORTERM", f"TERM={kind}", sys.executable, script, str(tmp_path))
        tmux.see("1 Overview", "node1", "! 1", "? Keys")
        assert bool(MANY_COLOURS.search(tmux.painted)) == (kind == "xterm-256color")
        tmux.press("4")
        tmux.see("COMMAND", "pretrain-a: python train.py")
        tmux.press("?")
        tmux.see("Here: Tasks")
        tmux.press("Escape")
        tmux.see("COMMAND")
        tmux.press("Down", "Enter")
        tmux.see("Summary", "owner")
        tmux.press("Escape")
        tmux.see("COMMAND")
        tmux.press("q")
        tmux.see("\nready$")
        assert "COMMAND" not in tmux.text
        assert "Traceback" not in tmux.text
        tmux.press("stty -a | tr ';' '\\n' | grep -c -e '-echo ' -e '-icanon'; echo 'typed', again", "Enter")
        tmux.see("\n0\ntyped, again")
