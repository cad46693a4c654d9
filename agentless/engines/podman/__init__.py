"""podman: where its commands and answers differ from Docker's. No I/O."""
