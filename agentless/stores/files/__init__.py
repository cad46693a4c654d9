"""Contents that are kept here: logs, outputs and uploads."""
