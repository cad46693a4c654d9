"""Verbs about files: cp and volumes."""
