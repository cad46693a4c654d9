"""The dashboard in a browser: a web server on loopback for the user who started it, a process per visitor."""
