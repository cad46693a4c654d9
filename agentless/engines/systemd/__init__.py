"""Tasks without a container, as transient systemd services. No I/O."""
