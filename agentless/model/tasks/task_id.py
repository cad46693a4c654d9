"""What a task is called by: an id of its own, with the number of the try after the first.

It imports next to nothing, for every command pays for it.
"""

from __future__ import annotations

import os
import re

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(r"[0-9a-z]{1,32}(-[0-9]{1,4})?")
_EPOCH = 1_704_067_200.0  # 2024-01-01, so that eight digits of milliseconds last until 2058


def first_try(task_id: str) -> str:
    """The id of the first try of the same command, which names all of them."""
    return task_id.partition("-")[0]


def numbered(task_id: str) -> str:
    """The id with the number of the try, also of the first one: `…-1`."""
    return task_id if "-" in task_id else f"{task_id}-1"


def attempt_of(task_id: str) -> int:
    """The number of the try, from 1 on."""
    return int(task_id.partition("-")[2] or 1)


def next_try(task_id: str) -> str:
    """The id that the try after this one has: `…-2` after the first."""
    first, _, number = task_id.partition("-")
    return f"{first}-{int(number or 1) + 1}"


def previous_try(task_id: str) -> str:
    """The id that the try before this one had; raises ValueError for a first try."""
    first, _, number = task_id.partition("-")
    return first if int(number) == 2 else f"{first}-{int(number) - 1}"


def is_task_id(text: str) -> bool:
    """Whether a task may be called so. What a label says may be anybody's words, like a path."""
    return bool(_ID.fullmatch(text))


def new_task_id(now: float, last: str = "") -> str:
    """Eleven characters: eight of milliseconds since 2024, three random. Sorts by time, also after `last`."""
    stamp = int((now - _EPOCH) * 1000)
    if last:
        stamp = max(stamp, _decode(last[:8]) + 1)
    return _encode(stamp, 8) + "".join(_ALPHABET[byte % 32] for byte in os.urandom(3))


def _encode(number: int, width: int) -> str:
    digits = ""
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits = _ALPHABET[digit] + digits
    return digits


def _decode(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number * 32 + _ALPHABET.index(digit)
    return number
