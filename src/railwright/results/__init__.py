"""Records of measurements, and tools to read and compare them."""
