"""Nodes, their GPUs, and the cluster."""
