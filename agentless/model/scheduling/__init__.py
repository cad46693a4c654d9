"""What a task needs of the cluster, and what is kept for somebody."""
