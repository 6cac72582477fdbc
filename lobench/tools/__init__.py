"""Tools: one folder a feature, from its command to its page."""
