"""Who used how much of the GPUs, and how numbers are kept over time."""
