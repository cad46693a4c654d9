"""Who may come into the dashboard of a browser."""

import pytest

from agentless.web.door import LIFETIME, Door, is_loopback, is_own_page


def test_a_token_is_exchanged_for_a_session_that_is_in():
    door = Door()
    assert door.is_in(door.exchange(door.new_token(0), 0))


def test_a_token_works_once():
    door = Door()
    token = door.new_token(0)
    door.exchange(token, 0)
    assert door.exchange(token, 0) is None


def test_a_token_works_until_its_time_is_up():
    door = Door()
    early, late = door.new_token(0), door.new_token(0)
    assert [door.exchange(early, LIFETIME - 1) is None, door.exchange(late, LIFETIME) is None] == [False, True]


def test_a_session_outlives_the_time_of_its_token():
    door = Door()
    session = door.exchange(door.new_token(0), 0)
    door.exchange("another", LIFETIME * 100)
    assert door.is_in(session)


def test_a_new_token_leaves_the_one_before_as_it_is():
    door = Door()
    first, _ = door.new_token(0), door.new_token(1)
    assert door.exchange(first, 2) is not None


@pytest.mark.parametrize("said", ["", "x", "é", "\udcff", "a" * 10_000])
def test_whatever_else_is_said_neither_is_a_token_nor_a_session(said):
    door = Door()
    door.exchange(door.new_token(0), 0)
    door.new_token(0)
    assert (door.exchange(said, 0), door.is_in(said)) == (None, False)


def test_a_token_is_no_session_and_a_session_no_token():
    door = Door()
    session = door.exchange(door.new_token(0), 0)
    assert (door.is_in(door.new_token(0)), door.exchange(session, 0)) == (False, None)


def test_two_doors_have_nothing_in_common():
    one, other = Door(), Door()
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
