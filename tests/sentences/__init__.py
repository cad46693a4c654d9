"""Every sentence that the program can show to a person, read from the sources: `make sentences` writes the list."""
