"""What the dashboard knows of the cluster, and what can be done to it."""
