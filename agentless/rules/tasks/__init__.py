"""The life of a task: its states, its events, and what follows from its end."""
