"""Ranks beside and inside a container on its host."""
