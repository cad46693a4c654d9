"""An image on its way from one node to others: how far it has come, and what it took in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Via = Literal["auto", "controller", "straight", "shared"]
"""Which way an image takes; `auto` is through the controller unless that is slow and there is a straight way."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer to one node is.

    `step` is in words. `done` and `total` are bytes of layers as they are unpacked, `total` is None until it is known;
    `sent` are bytes that went over the network to the node. `rate` is in bytes of `sent` per second, `eta` in seconds;
    both are None until enough has gone to tell.
    """

    node: str
    step: str
    done: int
    total: int | None
    sent: int
    rate: float | None
    eta: float | None


@dataclass(frozen=True, slots=True)
class Sent:
    """What a transfer to one node took.

    `sent` are bytes over the network, `size` is the size of the image there. `how`: `current` (it had the image
    already), `layers` (only those that it lacked), `whole` (the whole archive), `straight` (from node to node),
    `shared` (through a folder that both have).
    """

    node: str
    image: str
    sent: int
    size: int
    layers_sent: int
    layers: int
    seconds: float
    how: str
