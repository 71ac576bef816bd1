"""Options that several verbs have, and what they name. Importing one loads nothing but click."""
