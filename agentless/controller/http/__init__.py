"""The HTTP API over the controller's socket."""
