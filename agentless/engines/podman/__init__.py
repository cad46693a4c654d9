"""podman as a `Dialect` of the engine in `engines/docker`. No I/O."""
