"""Binary formats: tar archives, frames, and uploaded contents."""
