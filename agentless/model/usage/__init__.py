"""Numbers over time: what GPUs did and who had them."""
