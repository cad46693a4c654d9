"""Nodes: connections, what is known of them, and what follows for tasks."""
