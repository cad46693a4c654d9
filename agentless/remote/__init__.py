"""Running commands on a node: sessions over any transport."""
