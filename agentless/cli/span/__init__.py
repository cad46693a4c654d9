"""The verb that runs sweeps on this machine."""
