"""What a person does with lobench, as functions without a terminal: watch, compare, best, baseline.

Each takes values, returns values and raises `LobenchError`. What is said while it runs goes to the `Progress` that the
caller hands in. The command line parses, calls one of them, prints, and makes an exit code of what it returned.
"""
