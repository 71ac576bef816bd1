"""Output of perftest: text and JSON."""
