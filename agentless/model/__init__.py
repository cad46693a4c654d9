"""Values: frozen, comparable, without I/O."""
