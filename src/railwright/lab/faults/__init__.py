"""Faults that can be put into a lab and taken out again: one file for each says, purely, what it changes."""
