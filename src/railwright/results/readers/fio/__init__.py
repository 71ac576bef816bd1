"""Output of fio: text of versions 2 and 3, JSON, and terse lines."""
