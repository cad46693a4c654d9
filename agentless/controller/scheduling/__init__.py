"""The queue: when it is looked at, and what that needs to know."""
