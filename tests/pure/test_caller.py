"""Who a request comes from."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from agentless.controller.http.caller import caller_of
from agentless.errors import UsageError
from agentless.model.caller import Caller


def request(**headers: str) -> Request:
    app = FastAPI()
    app.state.owner = "me@here"
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "app": app, "headers": raw})


async def test_it_is_the_user_of_the_controller_unless_the_request_names_another() -> None:
    assert await caller_of(request()) == Caller("me@here")
    assert await caller_of(request(x_agentless_owner="")) == Caller("me@here")
    assert await caller_of(request(x_agentless_owner="anna")) == Caller("anna")


async def test_a_name_that_nobody_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="AGENTLESS_OWNER"):
        await caller_of(request(x_agentless_owner="-rf /"))


def test_a_cause_names_it() -> None:
    assert f"agentless stop, by {Caller('anna@desk')}" == "agentless stop, by anna@desk"
