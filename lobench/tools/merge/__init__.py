"""`lobench merge`: several stores become one."""
