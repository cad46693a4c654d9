"""The state of nodes and GPUs out of what was observed of them."""
