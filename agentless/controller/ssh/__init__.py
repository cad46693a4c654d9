"""An SSH server for running containers: on a socket of the state folder, so that nothing listens on a network."""
