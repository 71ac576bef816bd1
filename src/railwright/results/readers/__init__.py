"""Readers of foreign formats, one per file."""
