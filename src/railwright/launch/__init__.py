"""Launching of ranks: start, supervision and end."""
