"""Which host, link or route is slow: the fabric, a schedule of few rounds, what follows from them, and a simulator."""
