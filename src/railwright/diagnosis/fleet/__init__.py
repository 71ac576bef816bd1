"""Differences between hosts of a fleet that should be alike, and the traffic between them. Pure."""
