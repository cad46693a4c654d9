"""Engines run tasks on a node: they render commands and parse the answers. Other layers use `ports.Engine`."""
