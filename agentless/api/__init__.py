"""The Python API: `from agentless import Cluster`. Requests and values; start reading at `cluster`."""
