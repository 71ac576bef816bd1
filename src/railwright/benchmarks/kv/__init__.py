"""KV caches moved by NIXL: between memories, to files and to objects."""
