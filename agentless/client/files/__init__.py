"""Copies and uploads, from this machine's side."""
