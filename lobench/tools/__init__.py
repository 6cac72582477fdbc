"""Tools: one folder per command.

Its `__init__.py` declares the command in `COMMANDS`; no other package imports the folder.

A tool that adds options to another command declares them in `OPTIONS`.
"""
