"""Programs that the SSH client configuration runs."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from agentless.remote.transports._ssh import config


def test_a_match_exec_that_hangs_does_not_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "EXEC_WITHIN", 0.1)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text('Match exec "sleep 5; true"\n  Port 1\nMatch exec "true"\n  User ann\n')
    found = config.HostConfig("h", home=tmp_path, local_user="me")
    assert (found.get("Port"), found.get("User")) == (None, "ann")


def test_what_it_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process group is killed: whatever is left would keep the pipe open."""
    monkeypatch.setattr(config, "EXEC_WITHIN", 0.5)
    (tmp_path / ".ssh").mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / ".ssh/config").write_text(f'Match exec "(exec sleep 600) >{pipe} & wait"\n  Port 1\n')
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert config.HostConfig("h", home=tmp_path, local_user="me").get("Port") is None
        assert select.select([reader], [], [], 30)[0]
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)
