"""Files that are uploaded with a task, fetched after it, or copied."""
