"""The view of VPS, and the screens of one of them."""
