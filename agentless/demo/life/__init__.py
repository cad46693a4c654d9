"""What makes a simulated cluster live: loads that move as training does, busy hosts, and an hour that was before."""
