"""The simulated container engine: its `docker` command and its containers."""
