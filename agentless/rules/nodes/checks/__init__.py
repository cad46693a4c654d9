"""The checks of `doctor`: facts in, checks out."""
