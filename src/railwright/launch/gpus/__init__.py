"""GPUs during a launch: clock locks, samples, and other users."""
