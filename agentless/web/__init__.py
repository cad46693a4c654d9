"""The dashboard in a browser: a web server on loopback, for the one who started it, and an app process per visitor."""
