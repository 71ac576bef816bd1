"""Explains a known tool's output: compares its rows with a machine, and finds faults that fit the curve. Pure."""
