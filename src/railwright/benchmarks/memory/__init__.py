"""Host memory: one copy, all of it, one cache line."""
