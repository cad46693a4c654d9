"""GPU vendors, one file each: the script that asks the driver, and what its answer means."""
