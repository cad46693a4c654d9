"""Who may come into the dashboard of a browser."""

import time

import pytest

from agentless.web.authentication import LIFETIME, Authentication, is_loopback, is_own_page
from agentless.web.site import Site


def test_a_token_is_exchanged_for_a_session_that_is_in():
    auth = Authentication()
    assert auth.is_in(auth.exchange(auth.new_token(0), 0))


def test_a_token_works_once():
    auth = Authentication()
    token = auth.new_token(0)
    auth.exchange(token, 0)
    assert auth.exchange(token, 0) is None


def test_a_token_works_until_its_time_is_up():
    auth = Authentication()
    early, late = auth.new_token(0), auth.new_token(0)
    assert [auth.exchange(early, LIFETIME - 1) is None, auth.exchange(late, LIFETIME) is None] == [False, True]


def test_a_session_outlives_the_time_of_its_token():
    auth = Authentication()
    session = auth.exchange(auth.new_token(0), 0)
    auth.exchange("another", LIFETIME * 100)
    assert auth.is_in(session)


def test_a_new_token_leaves_the_one_before_as_it_is():
    auth = Authentication()
    first, _ = auth.new_token(0), auth.new_token(1)
    assert auth.exchange(first, 2) is not None


@pytest.mark.parametrize("said", ["", "x", "é", "\udcff", "a" * 10_000])
def test_whatever_else_is_said_neither_is_a_token_nor_a_session(said):
    auth = Authentication()
    auth.exchange(auth.new_token(0), 0)
    auth.new_token(0)
    assert (auth.exchange(said, 0), auth.is_in(said)) == (None, False)


def test_a_token_is_no_session_and_a_session_no_token():
    auth = Authentication()
    session = auth.exchange(auth.new_token(0), 0)
    assert (auth.is_in(auth.new_token(0)), auth.exchange(session, 0)) == (False, None)


def test_two_servers_share_no_tokens_and_no_sessions():
    one, other = Authentication(), Authentication()
    assert one.folder != other.folder
    assert other.exchange(one.new_token(0), 0) is None


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "127.0.0.1", "localhost:1", "[::1]:8000"])
def test_this_machine_is_loopback_at_any_port(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "10.0.0.1:8000",
        "evil.example:8000",
        "127.0.0.1.evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1:8000@evil.example",
        "evil.example#127.0.0.1:8000",
        "127.0.0.1:8000\n",
        "127.0.0.1:",
        '127.0.0.1:1"',
    ],
)
def test_no_other_name_is_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("origin", "own"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.0.0.1:8001", False),
        ("http://localhost:8000", False),
        ("https://127.0.0.1:8000", False),
        ("http://evil.example", False),
        ("null", False),
        (None, False),
    ],
)
def test_a_page_is_our_own_when_it_came_from_the_very_same_address(origin, own):
    assert is_own_page(origin, "127.0.0.1:8000") == own


async def test_a_link_leads_to_the_place_that_was_asked_for_without_its_token():
    auth = Authentication()
    site = Site((), auth, visitors=1, heartbeat=1.0)
    for path, place in (("/", ""), ("/tasks/2mz/log", "tasks/2mz/log"), (f"{auth.folder}queue", "queue"), ("//x", "x")):
        answer = site._enter(auth.new_token(time.monotonic()), path)
        assert (answer.status, answer.headers["Location"]) == (303, auth.folder + place)
