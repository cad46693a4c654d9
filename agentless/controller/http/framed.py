"""An answer in frames: a log, or the archive of an env."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import orjson
from fastapi.responses import StreamingResponse

from agentless.errors import AgentlessError
from agentless.formats.frames import END, Frame, frame


def framed(output: AsyncIterator[Frame], headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """The output as it comes; its END has the error that broke it off, if one did."""
    return StreamingResponse(_frames(output), media_type="application/octet-stream", headers=headers)


async def _frames(output: AsyncIterator[Frame]) -> AsyncIterator[bytes]:
    end = b""
    try:
        async for each in output:
            yield frame(*each)
    except AgentlessError as error:
        end = orjson.dumps(error.published())
    yield frame(END, end)
