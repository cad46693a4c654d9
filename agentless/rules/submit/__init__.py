"""The options of a submit, and the spans that make many tasks of one command."""
