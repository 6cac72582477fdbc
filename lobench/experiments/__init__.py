"""`lobench run` and `lobench tune`: methods x cases x sessions."""
