"""Executables of programs, stored for other processes, and the hash of everything that tracing them could read."""
