"""Cleaning of pasted text before the tool is known: prefixes, marks, command lines, documents, numbers."""
