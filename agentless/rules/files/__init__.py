"""Uploads, outputs and copies: what goes where."""
