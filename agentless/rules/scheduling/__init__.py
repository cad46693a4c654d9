"""Which task starts now, on which node and which GPUs, and when the others will."""
