"""Screens that show an answer of the controller: usage, the timeline, envs."""
