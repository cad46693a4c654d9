"""The state of nodes and GPUs, from observations."""
