"""The Python API without a terminal: watch, compare, evaluate, and the resolution of names to subjects.

Each function takes values, returns values and raises `LobenchError`. It reports progress to the `WatchProgress` that
the caller passes. The command line parses options, calls one of these functions, prints, and turns the returned value
into an exit code.
"""
