"""Whole runs judged: points, paths, findings, causes. Pure."""
