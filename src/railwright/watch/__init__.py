"""A running job seen from outside: what is sampled while it runs, and what that tells."""
