"""Host memory: single copies, its whole bandwidth, and cache lines between cores."""
