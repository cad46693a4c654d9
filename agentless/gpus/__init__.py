"""GPU vendors, a folder each: the probe, how devices come to a task, faults, complaints. See `ports.GpuVendor`."""
