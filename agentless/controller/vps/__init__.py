"""VPS: containers that stay, and can be stopped and started."""
