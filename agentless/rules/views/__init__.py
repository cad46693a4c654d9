"""From what the controller knows to what it publishes."""
