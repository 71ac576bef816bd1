"""Explains what a known tool printed: its rows held against a machine, and the faults that give such a curve. Pure."""
