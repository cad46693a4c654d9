"""Containers as engines know them: labels, launches, logs."""
