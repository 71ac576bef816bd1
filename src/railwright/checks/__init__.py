"""Checks find settings that cost something, each in a file with its remedy. Pure."""
