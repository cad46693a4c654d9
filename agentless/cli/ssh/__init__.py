"""The verbs about ssh into containers."""
