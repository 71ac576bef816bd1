"""Plain sockets between two processes, without any library on top."""
