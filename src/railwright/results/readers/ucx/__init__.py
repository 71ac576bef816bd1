"""Readers of UCX: ucx_perftest, and the protocols that UCX logs."""
