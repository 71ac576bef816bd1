"""The parts of scripts/build-image."""
