"""The screen of one log or two, and what is asked there."""
