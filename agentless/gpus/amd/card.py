"""What a source says of an AMD card, and the ids that agentless gives to cards.

The id of a card is `AMD-` and the unique id that its driver has for it, 16 hexadecimal digits. Consumer cards have
none: there it is the PCI address, as eight digits, and a number for the machine, because two machines have cards at the
same address. `amd-machine.sh.j2` makes it on the node, for a sample as for a launch. A partition has the id of its card
with the way in which the card was divided in front, and its number: `AMD-cpx3-79ccd55167a2124a`. Claims hold the first
letters of it (`claims.sh.j2`), so that partitions of a card that was divided anew exclude those of before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from agentless.model.text import cut, printable

VENDOR = "amd"

_DECIMAL = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?")
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")
_NOTHING = re.compile(r"(?:N/A|None|unknown|0x[0-9a-fA-F]+|)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or one partition of it, as one source has it. MiB, percent, °C, watts, MHz. None: it does not say.

    `node` is the number by which HIP orders GPUs. `compute` and `memory` are the modes of partitions, like `CPX`.
    """

    node: int | None = None
    unique: str | None = None
    name: str | None = None
    driver: str | None = None
    total: int | None = None
    used: int | None = None
    busy: int | None = None
    memory_busy: int | None = None
    celsius: int | None = None
    watts: float | None = None
    watts_limit: float | None = None
    fan: int | None = None
    mhz: int | None = None
    memory_mhz: int | None = None
    uncorrected: int | None = None
    numa: int | None = None
    compute: str | None = None
    memory: str | None = None

    def filled(self, other: Card | None) -> Card:
        """This card, with what it lacks from another source."""
        if other is None:
            return self
        lacking = [each.name for each in fields(Card) if getattr(self, each.name) is None]
        return replace(self, **{name: getattr(other, name) for name in lacking})


def unique(text: str) -> str | None:
    """A unique id as 16 hexadecimal digits: amd-smi and rocm-smi leave leading zeros out. None for none."""
    match = _HEX.fullmatch(text)
    number = int(match[1], 16) if match else 0
    return f"{number:016x}" if number else None


def decimal(text: str, most: float) -> float | None:
    """The number in a text, with decimals; None for none, and for one above `most`, which no GPU has."""
    value = float(text) if _DECIMAL.fullmatch(text) else None
    return None if value is None or not 0 <= value <= most else value


def rounded(value: float | None) -> int | None:
    """The nearest whole number."""
    return None if value is None else round(value)


def name_of(text: str) -> str | None:
    """A name for people; None for what stands for none."""
    text = printable(cut(text, 200)).strip()
    return None if _NOTHING.fullmatch(text) else cut(text, 64)


def part_id(card: str, part: int, compute: str) -> str:
    """The id of a partition of a card."""
    return f"{card.partition('-')[0]}-{compute}{part}-{card.partition('-')[2]}"
