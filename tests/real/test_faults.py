"""The faults of `make faults`, a few injections of each: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import pytest

from tests.faults.matrix import IN_BRIEF, RARER, run
from tests.faults.scene import Scene


@pytest.fixture(scope="module")
def scene(lab):
    scene = Scene(lab, quick=True)
    yield scene
    scene.close()


@pytest.mark.parametrize("name", [*IN_BRIEF, *(pytest.param(name, marks=pytest.mark.slow) for name in RARER)])
def test_nothing_is_lost_and_nothing_is_there_twice(scene, name):
    row = run(name, scene)
    assert (row.lost, row.double) == ([], [])
    assert row.injected > 0
