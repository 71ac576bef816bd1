"""Starts ranks on machines, follows them, and ends them."""
