"""Tools: a folder for each new command, which its `__init__.py` declares (`COMMANDS`); no folder outside knows it.

A tool that adds options to another's command says so there too (`OPTIONS`).
"""
