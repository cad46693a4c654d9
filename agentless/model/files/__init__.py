"""Files that go along with a task, come back with it, or are copied."""
