"""Options of submit, and spans, which make many tasks from one command."""
