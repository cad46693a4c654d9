"""The verb that opens Jupyter in a container."""
