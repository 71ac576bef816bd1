"""Output of elbencho: text and CSV."""
