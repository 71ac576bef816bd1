"""The values that a workload should reach on a machine: the limit, the band of healthy systems, and their reasons."""
