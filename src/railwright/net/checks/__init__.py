"""One file for each check; `registry` has their order."""
