"""Verbs that start something: submit, run, span."""
