"""Who gives way to whom."""
