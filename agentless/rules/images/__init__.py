"""Envs and image layers: what has to travel and what may go."""
