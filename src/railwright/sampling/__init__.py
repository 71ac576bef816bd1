"""Counters and gauges of this machine: discovery, sampling during a run, and recordings."""
