"""Files in a container over a shell there."""

from __future__ import annotations

import asyncio

import pytest

from agentless.controller.ssh import files
from agentless.errors import Timeout


class Silent:
    """A program that takes everything and says nothing."""

    async def write(self, data: bytes) -> None:
        del data

    async def read(self) -> tuple[int, bytes] | None:
        await asyncio.Event().wait()
        return None


async def test_a_shell_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BEGIN_WITHIN", 0.01)
    with pytest.raises(Timeout, match="the shell in the container did not answer within"):
        await files.Files(Silent(), b"").begin()  # type: ignore[arg-type]
