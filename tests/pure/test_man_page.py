"""The manual page names every command and exit code, and is well formed."""

import re
import shutil
import subprocess

import pytest

from tests.pages import DOCS, commands

FILE = DOCS / "agentless.1"
TEXT = FILE.read_text().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")


@pytest.mark.parametrize("verb", commands())
def test_every_command_is_on_it(verb):
    section = TEXT.partition(".SH COMMANDS")[2].partition(".SH TARGETS")[0]
    assert re.search(rf"^\.TP\n(.*, )?{verb}\b", section, re.MULTILINE)


def test_every_exit_code_is_on_it():
    assert re.findall(r"^\.B (\d)$", TEXT, re.MULTILINE) == ["0", "1", "2", "3", "4"]


@pytest.mark.skipif(not shutil.which("groff"), reason="there is no groff")
def test_it_is_well_formed():
    done = subprocess.run(("groff", "-man", "-ww", "-z", FILE), capture_output=True, text=True, check=True)
    assert done.stderr == ""
