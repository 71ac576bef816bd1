"""A running job observed from outside: sampling of its counters, and their analysis."""
