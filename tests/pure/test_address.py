"""Addresses to listen on, as an inventory has them."""

from __future__ import annotations

import re

import pytest

from agentless.model.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("9400", Address("127.0.0.1", 9400), "127.0.0.1:9400"),
        ("localhost:9400", Address("127.0.0.1", 9400), "127.0.0.1:9400"),
        ("192.0.2.1:1", Address("192.0.2.1", 1), "192.0.2.1:1"),
        ("[::1]:65535", Address("::1", 65535), "[::1]:65535"),
    ],
)
def test_an_address_is_read_and_shown(text: str, address: Address, shown: str) -> None:
    assert parse_address(text) == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", "0", "65536", "99999", "192.0.2:1", "::1:9400", "lab:9400", "9400 "])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(text)}$|does not appear to be"):
        parse_address(text)
