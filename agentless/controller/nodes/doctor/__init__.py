"""Checks of nodes, and what they measure."""
