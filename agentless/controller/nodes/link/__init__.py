"""The parts of a `NodeLink`: what connects to one node, asks it, follows it, and remembers what it said."""
