"""Submitting: from a request to tasks that run or wait."""
