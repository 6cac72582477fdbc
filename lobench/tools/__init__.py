"""Tools: one folder per command.

The folder's `__init__.py` declares the command in `COMMANDS`. No other package imports the folder.

A tool that adds options to another command declares them in `OPTIONS`.
"""
