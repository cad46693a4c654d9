"""AMD's GPUs: what `/sys`, amd-smi and rocm-smi say of them, and how a task gets them."""
