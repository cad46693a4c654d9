"""From the admin's YAML file to nodes, with every error at its line and column."""
