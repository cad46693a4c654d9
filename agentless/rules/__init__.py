"""Decisions: pure functions from values to values. Time is an argument."""
