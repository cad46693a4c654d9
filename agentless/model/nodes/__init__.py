"""Nodes, their GPUs, and the cluster that they are."""
