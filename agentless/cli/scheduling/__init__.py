"""Verbs about the queue and the calendar."""
