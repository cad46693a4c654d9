"""Configuration files of Slurm, made from what is known of the nodes."""
