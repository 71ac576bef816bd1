"""Searches for slow hosts, links and routes by real probes."""
