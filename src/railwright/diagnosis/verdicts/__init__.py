"""Measurements held against their limits: the verdict, what doubts it, and the exit status. Pure."""
