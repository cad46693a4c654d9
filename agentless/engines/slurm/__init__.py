"""Slurm, asked by its own commands on a login node."""
