"""Output of HPL and of Intel's LINPACK."""
