"""The verbs about VPS."""
