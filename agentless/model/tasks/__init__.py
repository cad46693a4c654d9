"""Tasks: their specs, their states, and their labels on nodes."""
