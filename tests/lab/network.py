"""The lab's network: a bridge on the machine, a namespace per node, a private /24 between them, no way out.

A namespace is a file in the node's folder (`unshare --net=FILE`) and not a name of `ip netns`: that would
leave a mount on /run/netns behind, and `ip netns exec` remounts /sys, with which no Docker engine starts.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

LABS = 250  # also the number of nodes in a lab: both are the third and fourth number of an address


@dataclass(frozen=True)
class Network:
    """A lab's bridge; every name of the lab starts with `name`, which no other lab on the machine has."""

    index: int

    @property
    def name(self) -> str:
        """Of the bridge, and the first letters of all links and users of this lab."""
        return f"agl{self.index}"

    @classmethod
    def create(cls) -> Network:
        """Take the first free number. Making the bridge is the claim: the kernel lets only one lab do it."""
        for index in range(LABS):
            network = cls(index)
            routes = ["ip", "-4", "route", "show", "root", f"{network.address(0)}/24"]
            if subprocess.run(routes, check=True, capture_output=True).stdout:
                continue
            claim = ["ip", "link", "add", network.name, "type", "bridge"]
            if subprocess.run(claim, check=False, capture_output=True).returncode == 0:
                return network
        raise RuntimeError(f"no network is left for a lab: of agl0 … agl{LABS - 1} and 10.213.0.0/16")

    def up(self) -> None:
        """Give the machine its address in it."""
        _ip(f"addr add {self.address(1)}/24 dev {self.name}", f"link set {self.name} up")

    def address(self, number: int) -> str:
        """0 is the subnet itself, 1 the machine, 2 and up the nodes."""
        return f"10.213.{self.index}.{number}"

    def add_namespace(self, file: Path, number: int) -> str:
        """Make a namespace that `file` holds open, with one link to the bridge; gives its address."""
        file.touch()
        subprocess.run(["unshare", f"--net={file}", "true"], check=True)
        link = f"{self.name}v{number}"
        _ip(
            f"link add {link} type veth peer name eth0 netns {file}",
            f"link set {link} master {self.name} up",
        )
        address = self.address(number)
        _ip("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up", inside=file)
        return address


def set_link(file: Path, up: bool) -> None:
    """Plug or pull the cable of the namespace `file`: packets vanish, connections do not notice."""
    _ip(f"link set eth0 {'up' if up else 'down'}", inside=file)


def enter(file: Path | None) -> list[str]:
    """The words before a command that is to run in the namespace `file`; none for the machine's own."""
    return ["nsenter", f"--net={file}"] if file else []


def _ip(*commands: str, inside: Path | None = None) -> None:
    argv = [*enter(inside), "ip", "-batch", "-"]
    subprocess.run(argv, input="\n".join(commands), text=True, check=True, capture_output=True)
