"""What several files of the pure ring need."""

from uuid import uuid4

import pytest

from tests.pure import build


@pytest.fixture
def own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that no other test has: launches see all claims of the machine, also those of tests that run beside."""
    monkeypatch.setattr(build, "RUN", f"-{uuid4()}")
