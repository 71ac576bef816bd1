"""Limits of paths, collectives, files and solvers, computed from facts of the hardware. Pure."""
