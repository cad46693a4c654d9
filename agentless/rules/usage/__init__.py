"""GPU usage by owner, and samples over time."""
