"""Verbs about the inventory, the controller, the dashboard and the demo."""
