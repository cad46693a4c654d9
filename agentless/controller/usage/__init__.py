"""Numbers of GPUs and tasks over time, and the metrics for Prometheus."""
