"""Images: envs, and transfers between nodes."""
