"""Signatures over the labels of a container: proof that this controller wrote them, for this node.

A user of Docker on a node can read and write any label there. So unsigned labels are treated like those of a foreign
container: it is shown, its GPUs count as held, and it can be stopped. A controller adopts a task, retries it, or
assigns a container to it only by labels with its own signature.

The signature is `1:` and the HMAC-SHA-256, in hexadecimal, of a JSON list: the node's name and the values of `COVERED`,
in that order, each empty if there is no such label. If a label is added to the claim, the version becomes 2.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.containers import claim

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
    """The id of a controller's state, and the key in its state folder."""

    controller: str
    key: bytes = field(repr=False)

    def sign(self, labels: Mapping[str, str], node: str) -> dict[str, str]:
        """The labels of a container on this node, with their signature."""
        return {**labels, SIGNATURE: self._signature(labels, node)}

    def has_signed(self, labels: Mapping[str, str], node: str) -> bool:
        """Whether this controller signed these labels for a container on this node."""
        given = labels.get(SIGNATURE, "").encode("utf-8", "replace")
        return hmac.compare_digest(given, self._signature(labels, node).encode())

    def _signature(self, labels: Mapping[str, str], node: str) -> str:
        text = json.dumps([node, *(labels.get(key, "") for key in COVERED)])
        return f"1:{hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()}"
