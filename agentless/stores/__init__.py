"""Where state is kept: `tinydb` what is live, `history` what has ended, `secrets` the values that wait for a start."""
