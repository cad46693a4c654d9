"""Uploads, outputs, volumes and copies."""
