"""Envs: made, moved and removed."""
