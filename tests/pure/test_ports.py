"""The ports of a task, and what Jupyter in a container says of itself: all of that is somebody else's text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.notebook import Server
from agentless.errors import Refused, UsageError
from agentless.model.tasks.port import MAX_PORTS, Port, check_ports, parse_port

TOKEN = "d85f78a58495258c7a1d550184494fb9"


@given(st.integers(1, 65535), st.integers(1, 65535))
def test_a_port_is_parsed_as_it_is_shown(port, local):
    assert parse_port(str(Port(port, local))) == Port(port, local)


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "1:2:3", "1:", ":1", "-1", "1.5", "١", "9" * 5000])
def test_what_is_no_port_is_a_sentence(text):
    with pytest.raises(UsageError, match="is no port; use PORT or PORT:LOCAL"):
        parse_port(text)


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ([Port(1, 9), Port(2, 9)], "port 9 of this machine is used twice; .* such as 2:10"),
        ([Port(0, 9)], "0:9 is no port"),
        ([Port(9, 65536)], "9:65536 is no port"),
        ([Port(each, each) for each in range(1, MAX_PORTS + 2)], "the limit is 64"),
    ],
)
def test_ports_that_cannot_all_be_forwarded_are_refused(ports, words):
    with pytest.raises(UsageError, match=words):
        check_ports(ports)


def test_one_port_may_be_reached_by_several():
    check_ports([Port(1, 9), Port(1, 10)])


def test_the_address_of_jupyter_has_its_path_and_its_token():
    said = json.dumps({"port": 8889, "token": TOKEN, "base_url": "/user/ann/"}).encode()
    assert Server.parse(said).url(9999) == f"http://localhost:9999/user/ann/?token={TOKEN}"
    assert TOKEN not in repr(Server.parse(said))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        {"port": 0},
        {"port": "8888"},
        {"port": True},
        {"token": ""},
        {"token": "a b c d e f g h"},
        {"token": f"{TOKEN}\r\nX: y"},
        {"token": None},
        {"base_url": "http://evil/"},
        {"base_url": "/a?b=/"},
        {"base_url": "/a b/"},
        {"base_url": "/\r\n/"},
    ],
)
def test_nothing_else_that_a_container_says_gets_into_an_address(said):
    if isinstance(said, dict):
        said = json.dumps({"port": 8888, "token": TOKEN, "base_url": "/", **said}).encode()
    with pytest.raises(Refused, match="nothing usable"):
        Server.parse(said)
