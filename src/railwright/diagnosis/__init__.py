"""Where it is slow, and why. Pure."""
