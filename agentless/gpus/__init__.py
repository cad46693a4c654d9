"""GPU vendors, a folder each: the probe, how a task gets devices, faults, complaints. See `ports.GpuVendor`."""
