"""Ports in containers: connections with them, and ports there that lead to the user."""
