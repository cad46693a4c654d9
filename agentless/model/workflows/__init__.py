"""Workflows: tasks that belong together and wait for each other."""
