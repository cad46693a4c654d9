"""Real nodes on one machine: each has its own network, OpenSSH `sshd`, Docker engine and stand-in GPUs."""

from .engine import IMAGE
from .lab import Lab
from .node import Node
from .requirements import requirements
from .suite import Kind, SuiteNode

__all__ = ["IMAGE", "Kind", "Lab", "Node", "SuiteNode", "requirements"]
