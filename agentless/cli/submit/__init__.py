"""The verbs that start tasks: submit and run."""
