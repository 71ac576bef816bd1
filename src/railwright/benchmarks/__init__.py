"""Benchmarks: one file per data path, and the registry that lists them."""
