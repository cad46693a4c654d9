"""The caller of a request.

The kernel lets only the user of the controller connect to its socket. That user may ask in another name, by the header
`x-agentless-owner`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from agentless.model.caller import Caller
from agentless.model.owner import check_owner


async def caller_of(request: Request) -> Caller:
    """The caller; raises UsageError for a name that is none.

    FastAPI runs a dependency that is not async in a thread, which takes as long as all the rest of a request.
    """
    name = request.headers.get("x-agentless-owner")
    return Caller(check_owner(name, "$AGENTLESS_OWNER") if name else request.app.state.owner)


CurrentCaller = Annotated[Caller, Depends(caller_of)]
"""The type of a route's parameter that is the caller."""
