"""The views, and the screens on top of them."""
