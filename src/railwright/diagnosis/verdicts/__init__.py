"""Compares measurements with their limits: the verdict, its doubts, and the exit status. Pure."""
