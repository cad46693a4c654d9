"""The parts of a `Link`: what connects to one node, asks it, follows it, and remembers what it said."""
