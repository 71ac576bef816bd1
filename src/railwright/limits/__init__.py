"""Limits of paths, collectives, files and solvers, computed from hardware facts without I/O."""
