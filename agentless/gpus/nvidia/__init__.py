"""NVIDIA. The wiring imports `vendor` only."""
