"""The command line: argv to one request, one response to a screen. One file per group of verbs."""
