"""What has ended and what was measured: SQLite files."""
