"""Verbs about nodes and their GPUs."""
