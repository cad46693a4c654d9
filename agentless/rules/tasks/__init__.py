"""The life of a task: which event leads to which state, and what follows from an end."""
