"""Executables of programs kept from one process to the next, and the hash of all that tracing them could reach."""
