"""Tasks that run as one on several nodes."""
