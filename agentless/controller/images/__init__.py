"""Images on their way from one node to others."""
