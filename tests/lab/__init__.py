"""Real nodes on one machine: each has its own network, OpenSSH `sshd`, Docker engine and stand-in GPUs."""

from .engine import IMAGE
from .lab import Lab
from .node import Node
from .requirements import requirements

__all__ = ["IMAGE", "Lab", "Node", "requirements"]
