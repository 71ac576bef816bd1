"""Ranks on a container's host, outside and inside the container."""
