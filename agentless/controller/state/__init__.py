"""The only place where tasks change, and the news of it."""
