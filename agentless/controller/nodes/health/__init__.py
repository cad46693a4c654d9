"""What keeps nodes and GPUs out: drains, faulty GPUs, and what is remembered of them."""
