"""GPUs during a launch: clocks, samples, and other users."""
