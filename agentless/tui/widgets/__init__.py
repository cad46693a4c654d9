"""Tables, tiles and lines that the screens are made of."""
