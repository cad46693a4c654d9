"""Child processes and terminals of simulated nodes."""
