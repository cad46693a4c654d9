"""Gangs: started together or not at all, and ended together."""
