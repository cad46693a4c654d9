"""Policies that choose among matching nodes: one file each, found by its name.

Each has `cost(node, spare)`. The node with the lowest cost is taken, of equals the first of the inventory. `node` is
its timeline; `spare` is the memory, in bytes, of the GPUs that the task would get, beyond its request.
"""
