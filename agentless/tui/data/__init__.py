"""The state of the cluster, and the actions on it, without a widget."""
