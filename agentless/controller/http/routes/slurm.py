"""The request about the way to Slurm."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.nodes.slurm import SlurmConfig
from agentless.model.view import SlurmView


class SlurmServices(Protocol):
    """The part that it uses."""

    slurm_config: SlurmConfig


def add_to(app: FastAPI, services: SlurmServices) -> None:
    """Add it."""

    @app.get("/v1/slurm/config")
    async def config(check: bool = False) -> SlurmView:
        """Configuration files of a Slurm cluster with all nodes. `check`: ask Slurm's programs on the nodes, too."""
        return await services.slurm_config.make(check=check)
