"""Options that several verbs share. Importing a module of this package imports nothing but click."""
