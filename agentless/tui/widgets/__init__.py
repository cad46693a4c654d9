"""The widgets of the screens: tables, tiles, lines, fields."""
