"""Faults that can be injected into a lab and healed. Each has a file that computes its effects. Pure."""
