"""Work in threads on files, and who waits for it no longer."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from agentless.controller.files.expected_outputs import Arriving, ExpectedOutputs
from agentless.controller.files.outputs import Outputs
from agentless.controller.images.layer_spool import LayerSpool
from agentless.controller.in_thread import in_thread
from agentless.model.files.file_spec import Output
from agentless.stores.files.output_archive import Arrival
from tests.pure.build import task


async def test_a_write_that_nobody_waits_for_any_more_goes_into_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed under it, its file would leave its number to the next one that is opened."""
    began, go, over, write = threading.Event(), threading.Event(), threading.Event(), os.pwrite

    def slowly(fd: int, data: bytes, at: int) -> int:
        began.set()
        go.wait(30)
        try:
            return write(fd, data, at)
        finally:
            over.set()

    async def put_and_close() -> None:
        try:
            await spool.put(spool.begin("layer", 5), b"layer", 5)
        finally:
            spool.close()

    monkeypatch.setattr(os, "pwrite", slowly)
    spool = LayerSpool()
    putting = asyncio.create_task(put_and_close())
    assert await asyncio.to_thread(began.wait, 30)
    putting.cancel()
    await asyncio.wait([putting], timeout=0.1)
    with (tmp_path / "other").open("wb"):
        go.set()
        assert await asyncio.to_thread(over.wait, 30)
    await asyncio.gather(putting, return_exceptions=True)
    assert (tmp_path / "other").read_bytes() == b""


async def test_outputs_that_nobody_waits_for_any_more_leave_nothing_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go, over = threading.Event(), threading.Event(), threading.Event()

    def slowly(new: Path, *_: object) -> None:
        began.set()
        go.wait(30)
        try:
            new.mkdir(parents=True)
        finally:
            over.set()

    async def answer(_: object) -> Any:
        return SimpleNamespace(ok=True, out="/\n")

    async def fetched(*_: object) -> Arrival:
        return Arrival()

    nothing: Any = None
    outputs = Outputs(ExpectedOutputs(nothing, nothing, nothing, nothing), nothing, tmp_path / "artifacts", MagicMock())
    monkeypatch.setattr("agentless.controller.files.outputs.arrive", slowly)
    monkeypatch.setattr(outputs, "_fetch", fetched)
    files = SimpleNamespace(folder=lambda _: None)
    outputs.expected.arriving[task().id] = Arriving("node1")
    link: Any = SimpleNamespace(run=answer, runtime=SimpleNamespace(files=files))
    bringing = asyncio.create_task(outputs._one(link, task(), Output("/out", f"{tmp_path}/"), (), lambda: True))
    assert await asyncio.to_thread(began.wait, 30)
    bringing.cancel()
    await asyncio.wait([bringing], timeout=0.1)
    go.set()
    assert await asyncio.to_thread(over.wait, 30)
    await asyncio.gather(bringing, return_exceptions=True)
    assert os.listdir(tmp_path) == []


async def test_who_is_cancelled_more_than_once_waits_all_the_same() -> None:
    began, go, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go.wait(30)
        over.set()

    working = asyncio.create_task(in_thread(work))
    assert await asyncio.to_thread(began.wait, 30)
    for _ in range(3):
        working.cancel()
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert over.is_set()


async def test_what_goes_wrong_in_the_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)
