"""Published values, made from the model."""
