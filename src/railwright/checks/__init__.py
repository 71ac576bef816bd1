"""Checks for settings that cost performance, one per file, each with its remedy. Pure."""
