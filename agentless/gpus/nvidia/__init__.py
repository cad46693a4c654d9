"""NVIDIA. `vendor` is what the wiring names."""
