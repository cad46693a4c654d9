"""Values: frozen, comparable, without I/O. Everything above is a function over these."""
