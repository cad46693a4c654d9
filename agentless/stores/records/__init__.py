"""Ended tasks and samples: SQLite files."""
