"""The verbs about workflows, and files with tasks."""
