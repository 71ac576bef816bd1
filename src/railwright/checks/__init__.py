"""What can be found in settings, one check per file, each with its remedy. Pure."""
