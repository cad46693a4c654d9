"""The needs of tasks, sharing of GPUs, and reservations."""
