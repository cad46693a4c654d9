"""A task, a GPU or a node in full, on a screen of its own."""
