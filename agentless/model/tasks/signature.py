"""Signatures over the labels of a container: proof that this controller wrote them, for this node.

Whoever may use Docker on a node reads and writes any label there. So a label is anybody's words, and what follows from
one alone is what follows from a stranger's container: it is shown, its GPUs are held, it can be stopped. A controller
takes a task in, tries it again or gives it a container only by labels that carry its signature.

The signature is `1:` and the HMAC-SHA-256, in hexadecimal, of a JSON list: the node's name and the values of `COVERED`,
in that order, each empty where there is no such label. A claim that gets another label gets version 2.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.tasks import claim

SIGNATURE = "agentless.signature"
COVERED = (
    claim.TASK,
    claim.OWNER,
    claim.GPUS,
    claim.CONTROLLER,
    claim.SHARE,
    claim.CORES,
    claim.MEMORY,
    claim.EXCLUSIVE,
    claim.LIMIT,
    claim.NUMA,
    claim.GPU_SHARE,
    claim.GPU_MEMORY,
    claim.SPEC,
)


@dataclass(frozen=True, slots=True)
class Signer:
    """A controller, by the id of its state, and the key that its state folder keeps."""

    controller: str
    key: bytes = field(repr=False)

    def sign(self, labels: Mapping[str, str], node: str) -> dict[str, str]:
        """The labels of a container on this node, and their signature."""
        return {**labels, SIGNATURE: self._signature(labels, node)}

    def has_signed(self, labels: Mapping[str, str], node: str) -> bool:
        """Whether this controller wrote all of `COVERED` so for a container on this node."""
        given = labels.get(SIGNATURE, "").encode("utf-8", "replace")
        return hmac.compare_digest(given, self._signature(labels, node).encode())

    def _signature(self, labels: Mapping[str, str], node: str) -> str:
        text = json.dumps([node, *(labels.get(key, "") for key in COVERED)])
        return f"1:{hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()}"
