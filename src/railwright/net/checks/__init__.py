"""The checks, one per file. `registry` lists them in order."""
