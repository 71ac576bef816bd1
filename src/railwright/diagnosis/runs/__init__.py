"""Judges whole runs: points, paths, findings, causes. Pure."""
