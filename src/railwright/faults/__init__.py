"""Faults that slow a curve down, one per file, each with its model and the check that finds it. Pure."""
