"""The transfer of an image between nodes: its progress and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Via = Literal["auto", "controller", "straight", "shared"]
"""The route of a transfer. `auto` is through the controller, unless that is slow and there is a direct route."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a transfer to one node.

    `step` is in words. `done` and `total` are bytes of uncompressed layers; `total` is None until it is known. `sent`
    are bytes over the network. `rate` is in bytes of `sent` per second, `eta` in seconds; both are None at first.
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
    """The result of a transfer to one node.

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
