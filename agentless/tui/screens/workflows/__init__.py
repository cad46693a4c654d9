"""The view of workflows, and one workflow as a graph."""
