"""Output of nvbandwidth: text and JSON."""
