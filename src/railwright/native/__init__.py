"""The timed loops: C files built into one library, and the modules that call them. All timed calls are here."""
