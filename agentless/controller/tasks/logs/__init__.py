"""Logs of tasks: read, copied from nodes, kept."""
