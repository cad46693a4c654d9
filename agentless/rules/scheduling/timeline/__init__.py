"""What is free when: on a node, on a GPU, and what was promised of it."""
