"""The live state: one TinyDB file and its tables."""
