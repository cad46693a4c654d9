"""The command line, a file per group of verbs: each turns argv into one request, and one response into output."""
