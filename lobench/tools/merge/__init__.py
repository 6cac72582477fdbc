"""`lobench merge`: several stores merged into one."""
