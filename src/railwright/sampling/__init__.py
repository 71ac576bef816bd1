"""Counters and gauges of this machine, sampled while something runs: which there are, and the recording of them."""
