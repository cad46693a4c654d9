"""Every command that touches a node, on each engine that we can have: `make engines`."""
