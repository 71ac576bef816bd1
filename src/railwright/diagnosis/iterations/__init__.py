"""What the curves of a running job tell, with no knowledge of it: its iterations, and what communication costs it."""
