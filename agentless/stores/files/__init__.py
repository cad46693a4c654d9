"""Files in the state folder: logs, outputs and uploads."""
