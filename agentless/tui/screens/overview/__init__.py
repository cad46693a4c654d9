"""The overview: all nodes and GPUs, what runs and waits, and what is wrong."""
