"""Plain sockets between two processes, without another library."""
