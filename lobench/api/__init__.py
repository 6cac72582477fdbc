"""The Python API without a terminal: watch, compare, evaluate, and the resolution of names to subjects.

Each takes values, returns values and raises `LobenchError`. What is said while it runs goes to the `Progress` that the
caller hands in. The command line parses, calls one of them, prints, and makes an exit code of what it returned.
"""
