"""Tools: one folder a feature, from its command to its page; no folder outside knows one."""
