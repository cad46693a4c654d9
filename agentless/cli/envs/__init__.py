"""Verbs about envs."""
