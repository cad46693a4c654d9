"""Docker: commands rendered from `templates/`, and the parsers of their answers. No I/O."""
