"""Nodes that a Slurm cluster manages: nobody here knows which GPUs Slurm has given to its jobs."""

from __future__ import annotations

from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node import NodeConfig


def why_slurm(config: NodeConfig, seen: Observation) -> str:
    """Why a node that Slurm manages gets no task, with the fix. Empty for any other, and where the inventory allows it.

    By the last look that could tell: a look that could not changes nothing.
    """
    if config.allow_slurm or not (seen.host and seen.host.slurmd):
        return ""
    fix = "submit to the Slurm cluster, or drain the node in Slurm and set allow: slurm"
    return f"Slurm manages {config.name} (slurmd runs there); {fix}"
