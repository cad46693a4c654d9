"""Verbs about the queue and reservations."""
