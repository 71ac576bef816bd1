"""The timed loops: C files built into one library, and what calls them. Timed calls are only here."""
