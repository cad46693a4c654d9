"""Formats of bytes: tar archives, read without trust and written, frames, uploaded contents."""
