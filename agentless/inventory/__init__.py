"""Reads the inventory, and reports every mistake with its line and column."""
