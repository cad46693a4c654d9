"""Files with tasks: workflows, and single tasks."""
