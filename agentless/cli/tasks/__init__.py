"""Verbs about tasks: ps, show, logs, shell, stop and the like."""
