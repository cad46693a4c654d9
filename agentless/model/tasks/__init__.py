"""Tasks: what was asked for, what became of it, and what the node carries of it."""
