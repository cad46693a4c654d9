"""Real nodes for the tests of this folder: `node1` and `node2`, two GPUs each, cured after every test."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab, requirements

SLOW = ("test_envs", "test_engine_troubles", "test_faults", "test_engines")
"""Files whose tests take several times as long as those of others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process is alone with one at the end; the others by their number of tests."""
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.stem not in SLOW, -sizes[item.path], item.path))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for the whole run. Its folder is a short one, see `Lab`."""
    if missing := requirements():
        pytest.skip(f"no real nodes on this machine: {'; '.join(missing)}")
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_nodes({"node1": 2, "node2": 2})
        yield lab


@pytest.fixture(autouse=True)
def _cured(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that used the lab: no fault and no container is left for the next one."""
    lab = request.getfixturevalue("lab") if "lab" in request.fixturenames else None
    yield
    if lab:
        lab.reset()
