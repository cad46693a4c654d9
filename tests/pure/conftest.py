"""What several files of the pure ring need."""

import os

import pytest

from tests.pure import build


@pytest.fixture
def own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that no other process has: launches see all claims of the machine, also those of tests that run beside."""
    monkeypatch.setattr(build, "RUN", f"-{os.getpid()}")
