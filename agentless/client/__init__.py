"""Requests to the controller over its socket, with the standard library alone."""
