"""Docker, and by another `Dialect` what takes its place: commands from `templates/`, answers parsed. No I/O."""
