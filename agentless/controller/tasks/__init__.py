"""Tasks: launch, stop, retry, logs, retention and removal."""
