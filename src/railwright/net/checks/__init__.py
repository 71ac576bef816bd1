"""The checks, each in a file; `registry` has their order."""
