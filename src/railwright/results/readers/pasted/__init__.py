"""Pasted text before any tool is known: prefixes, marks, command lines, documents, numbers."""
