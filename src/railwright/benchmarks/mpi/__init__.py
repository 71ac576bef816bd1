"""Messages and collectives between processes by MPI."""
