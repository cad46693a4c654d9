"""Container images of ours: envs and their way between nodes."""
