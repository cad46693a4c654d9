"""An artifact is bounded while it comes: the state folder is no place for a data set."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import MagicMock

import pytest

from agentless.controller.files import outputs as module
from agentless.controller.files.expected_outputs import Arriving, ExpectedOutputs
from agentless.controller.files.outputs import Outputs
from agentless.model.files.file_spec import Output
from agentless.model.files.upload_limits import MOST_ARCHIVED
from agentless.stores.files import output_archive
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
    with pytest.raises(
        Unusable, match=r"^larger than 1 GiB, the limit of all artifacts of a job; write them to a volume"
    ):
        check(before + MOST_ARCHIVED + 1)
    outputs._check_size(one, other, lambda: True)(100 * MOST_ARCHIVED)


class Stream:
    """What a node answers to `docker cp`."""

    exit_code = 0

    def __init__(self, data: bytes) -> None:
        self._pieces = iter([data[at : at + (1 << 18)] for at in range(0, len(data), 1 << 18)])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def __anext__(self) -> tuple[int, bytes]:
        for piece in self._pieces:
            return 1, piece
        raise StopAsyncIteration


def archived(*content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo("m")
        info.size = sum(map(len, content))
        tar.addfile(info, io.BytesIO(b"".join(content)))
    return file.getvalue()


def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> Any:
    """What copies an artifact with an archive, with this limit."""
    monkeypatch.setattr(module, "MAX_BYTES", limit)
    monkeypatch.setattr(output_archive, "ZEROS", 1 << 20)
    nothing = MagicMock()
    nothing.placed.return_value = None
    outputs = Outputs(ExpectedOutputs(nothing, nothing, nothing, nothing), nothing, tmp_path / "artifacts", nothing)
    one = task()
    outputs.expected.arriving[one.id] = Arriving("node1")

    async def copy(data: bytes, name: str = "m", folder: str = "artifacts") -> bool | str:
        files = SimpleNamespace(
            copy=lambda *_, **__: data,
            copy_packed=lambda *_: zlib.compress(data, wbits=31),
            says_missing=lambda _: False,
        )
        link: Any = SimpleNamespace(
            node=SimpleNamespace(name="node1"),
            runtime=SimpleNamespace(files=files),
            stream=lambda command, **_: Stream(command),
        )
        found = await outputs._one(link, one, Output(f"/{name}", f"{tmp_path}/{folder}/t/"), (), lambda: True)
        return found.here or found.words

    return copy


TOO_LARGE = output_archive.TOO_LARGE


async def test_an_artifact_that_comes_compressed_is_bounded_by_what_it_becomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(tmp_path, monkeypatch, 6 << 20)
    assert await copy(archived(bytes(2 << 20), b"A" * (5 << 20))) == TOO_LARGE
    assert await copy(archived(bytes(2 << 20), b"A" * (4 << 20))) is True  # what was given up does not count
    assert await copy(archived(bytes(2 << 20), b"A" * (5 << 20)), folder="results") is True


async def test_the_artifacts_of_a_job_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copied(tmp_path, monkeypatch, 1000)
    assert await copy(archived(b"A" * 600), "a") is True
    assert await copy(archived(b"A" * 401), "b") == TOO_LARGE
    assert await copy(archived(b"A" * 400), "c") is True
