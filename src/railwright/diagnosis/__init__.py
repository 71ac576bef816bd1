"""Finds which paths are slow, and why. Pure."""
