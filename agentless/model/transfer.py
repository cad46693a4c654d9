"""Images on their way from node to node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it has come to one node: `done` of `total` bytes of the image, `sent` of which went over the link.

    `rate` is bytes a second, `eta` seconds; None: not known.
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
    """How an image came to a node: `sent` bytes for an image of `size`, in so many seconds.

    `how` is current (it was there), layers (those that it lacked), whole, straight (from node to node) or shared.
    """

    node: str
    image: str
    sent: int
    size: int
    layers_sent: int
    layers: int
    seconds: float
    how: str
