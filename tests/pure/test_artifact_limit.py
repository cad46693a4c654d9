"""An artifact is bounded while it comes: the state folder is no place for a data set."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from agentless.controller.files.expected_outputs import Arriving, ExpectedOutputs
from agentless.controller.files.outputs import Outputs
from agentless.model.files.file_spec import Output
from agentless.model.files.upload_limits import MOST_ARCHIVED
from agentless.stores.files.output_archive import Unusable
from tests.pure.build import task


def test_a_copy_of_an_artifact_ends_at_the_limit_and_one_of_another_output_does_not(tmp_path: Path) -> None:
    nothing = MagicMock()
    outputs = Outputs(ExpectedOutputs(nothing, nothing, nothing, nothing), nothing, tmp_path / "artifacts", nothing)
    one, before = task(), 1000
    outputs.expected.arriving[one.id] = Arriving("node1", before)
    artifact, other = (Output("/m", f"{tmp_path}/{folder}/t/") for folder in ("artifacts", "artifacts-of-mine"))
    check = outputs._check_size(one, artifact, lambda: True)
    check(before + MOST_ARCHIVED)
    with pytest.raises(Unusable, match=r"^larger than 1 GiB, the limit of an artifact; write it to a volume"):
        check(before + MOST_ARCHIVED + 1)
    outputs._check_size(one, other, lambda: True)(100 * MOST_ARCHIVED)
