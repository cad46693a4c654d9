"""NVIDIA GPUs: the script that asks the driver, the parser of its answer, and its errors."""
