"""Tasks: in memory, on disk, and as events."""
