"""One node each: connected, sampled and watched."""
