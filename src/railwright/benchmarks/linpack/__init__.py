"""High-Performance Linpack: a dense system of equations, solved by all cores of one host or of many."""
