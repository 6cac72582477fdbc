"""Tools: a folder for each new command, which its `__init__.py` declares (`COMMANDS`); no folder outside knows it."""
