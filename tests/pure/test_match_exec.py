"""Programs that the SSH client configuration runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentless.remote.transports._ssh import config


def test_a_match_exec_that_hangs_does_not_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "EXEC_WITHIN", 0.1)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text('Match exec "sleep 5; true"\n  Port 1\nMatch exec "true"\n  User ann\n')
    found = config.HostConfig("h", home=tmp_path, local_user="me")
    assert (found.get("Port"), found.get("User")) == (None, "ann")
