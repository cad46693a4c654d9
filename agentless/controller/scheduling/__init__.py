"""The queue, the scheduler, reservations and usage that decides the order."""
