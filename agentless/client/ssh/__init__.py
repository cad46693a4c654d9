"""The user's own `ssh`, led to the controller."""
