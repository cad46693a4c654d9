"""Verbs about what was used."""
