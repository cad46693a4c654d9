"""The verbs for Slurm."""
