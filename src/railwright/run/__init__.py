"""Plans a run, measures it, and records it."""
