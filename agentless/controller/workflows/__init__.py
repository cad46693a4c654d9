"""Workflows: submitted as a whole, shown, stopped and tried again as a whole."""
