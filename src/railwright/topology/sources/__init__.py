"""The sources of a topology: this machine, a capture, a saved file or a named shape."""
