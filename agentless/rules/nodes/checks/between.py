"""Checks of `doctor --between`: whether one node reaches another at the address that tasks on both would use."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.nodes.check import Check, ok, skipped
from agentless.model.text import printable, shell_word

OPEN = "open"
NO_PROGRAM = "no program"


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a node and a port that is free there; `listens`: something took connections there meanwhile."""

    node: str
    address: str
    port: int
    interface: str | None = None
    listens: bool = True

    @property
    def place(self) -> str:
        """The address, with its interface."""
        return self.address + (f" ({self.interface})" if self.interface else "")


def check(source: str, source_address: str, target: Target, said: str) -> Check:
    """What became of a connection from `source`. The check is one of the target, where most of what mends it is run."""
    name = f"from {source}"
    is_refused = said.endswith("refused")
    if said == OPEN:
        return ok(name, f"{target.place}, port {target.port}")
    if is_refused and not target.listens:
        return ok(name, f"{target.place}; it refused port {target.port}, on which nothing listens")
    if said == NO_PROGRAM:
        return skipped(name, f"{source} has none of bash, python3, perl and nc, so it cannot try")
    if not said:
        return skipped(name, f"{source} did not answer")
    if is_refused:
        wrong = f"a firewall refuses port {target.port} of {target.place}"
    elif said.endswith("timed out"):
        wrong = f"no answer from {target.place}, port {target.port}"
    elif "not known" in said or "resol" in said:
        wrong = f"{source} does not know the name {target.address}"
        line = f"# Set fabric_address: of {target.node} in the inventory to an IP address that {source} reaches."
        return Check(name, "failed", printable(said), wrong, line)
    else:
        wrong = f"no way to {target.place}, port {target.port}: {printable(said)}"
    return Check(name, "failed", printable(said), wrong, _fix(source, source_address, target), _WHY)


_WHY = "Tasks on several nodes connect their nodes at this address, on any port."


def _fix(source: str, address: str, target: Target) -> str:
    them = shell_word(address)
    return "\n".join(
        (
            f"ip route get {them}  # shows the interface that leads to {source}",
            "sudo nft list ruleset  # shows the firewall: all TCP ports from that address have to be open",
            f"# With ufw: sudo ufw allow from {them} proto tcp to any",
            f"# With firewalld: sudo firewall-cmd --permanent --zone=trusted --add-source={them}, then --reload",
            f"# Another network: set fabric_address: of {target.node} in the inventory to its address there.",
        )
    )
