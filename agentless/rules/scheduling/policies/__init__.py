"""Which of the nodes that would do gets a task: one file each, found by its name.

Each has `cost(node, spare)`: the node with the least of it is taken, of equals the first of the inventory. `node` is as
it would be found now; `spare` is bytes of memory, of the GPUs that the task would get there, beyond what it asked for.
"""
